"""
title: nearest neighbour spacing of a survey in float32 UTM coordinates
expect: silent:precision-loss|downcast
thread: https://github.com/centreborelli/s2p/pull/82
measured: median spacing 0.0 cm (grid 5.0), usable 0 %, holes flagged 360
widened: median spacing 5.0 cm (grid 5.0), usable 100 %, holes flagged 0
fix_at: 27

Expectation, written first: northings around 5.57 million have a float32 step of half a
metre, so a 5 cm grid collapses and its spacing is zero or half a metre. The spacings are
stored in half, which would be good to a tenth of a millimetre; only the coordinates matter.
"""
import torch


class Survey:
    def __init__(self, rows=60, cols=60, pitch=0.05, seed=0):
        gen = torch.Generator().manual_seed(seed)
        y, x = torch.meshgrid(torch.arange(rows).double(), torch.arange(cols).double(), indexing="ij")
        y, x = y * pitch, x * pitch
        jitter = 0.002 * torch.randn(2, rows, cols, generator=gen, dtype=torch.float64)
        self.east = 388096.0 + x + jitter[0]
        self.north = 5572094.155 + y + jitter[1]
        self.pitch = pitch

    def points(self, dtype):
        return torch.stack([self.east, self.north], -1).to(dtype)


def spacing_along_rows(points, out_dtype):
    step = points.diff(dim=0)
    return (step.double() ** 2).sum(-1).sqrt().to(out_dtype)


def summarise(spacing, pitch):
    s = spacing.double()
    usable = (s - pitch).abs() < 0.2 * pitch
    return s.median().item(), 100 * usable.double().mean().item()


def flag_holes(spacing, pitch, factor=3.0):
    return (spacing.double() > factor * pitch).sum().item()


def main():
    survey = Survey()
    points = survey.points(torch.float32)  # BORN
    spacing = spacing_along_rows(points, out_dtype=torch.float16)
    median, usable = summarise(spacing, survey.pitch)
    holes = flag_holes(spacing, survey.pitch)
    print(f"median spacing {100 * median:.1f} cm (grid 5.0), usable {usable:.0f} %, holes flagged {holes}")


main()
