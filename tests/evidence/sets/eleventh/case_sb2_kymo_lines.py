"""
title: the time stamps of a kymograph are averaged to pixels in floating point
expect: silent:precision-loss|promotion
thread: https://github.com/lumicks/pylake/pull/209
measured: dwell between 768 and 1536 ns, spread 768 ns, slowest pixel at 68% of the mean rate
widened: dwell between 1040 and 1040 ns, spread 0 ns, slowest pixel at 100% of the mean rate

Expectation, written first: nanoseconds since 1970 need sixty bits and float64 has fifty-three, so pixel times move
in steps of 256 ns; the dwell time of a pixel, constant in truth, seems to vary.
"""
import torch


class InfoWave:
    def __init__(self, start, sample_ns, pixels, samples_per_pixel):
        n = pixels * samples_per_pixel
        self.stamps = start + sample_ns * torch.arange(n, dtype=torch.int64)
        self.samples_per_pixel = samples_per_pixel


class Kymograph:
    def __init__(self, wave, pixels_per_line):
        self.wave, self.per_line = wave, pixels_per_line

    def reconstruct(self, values, reduce):
        blocks = values.view(-1, self.wave.samples_per_pixel)
        return reduce(blocks).view(-1, self.per_line)

    def photon_counts(self, photons):
        return self.reconstruct(photons, lambda b: b.sum(1))

    def pixel_times(self):
        mean = lambda b: b.to(torch.float64).mean(1)  # BORN
        return self.reconstruct(self.wave.stamps, mean)

    def dwell(self):
        return self.pixel_times().diff(dim=1)


def main():
    wave = InfoWave(start=1_638_000_000_123_456_789, sample_ns=130, pixels=64 * 20, samples_per_pixel=8)
    kymo = Kymograph(wave, pixels_per_line=64)
    photons = torch.poisson(torch.full((64 * 20 * 8,), 0.3), generator=torch.Generator().manual_seed(0))
    image = kymo.photon_counts(photons)
    dwell = kymo.dwell()
    spread = (dwell.max() - dwell.min()).item()
    rate = image.mean() / (dwell.double().mean() * 1e-9)
    low = (image.mean() / (dwell.max() * 1e-9) / rate).item()
    print(f"dwell between {dwell.min().item():.0f} and {dwell.max().item():.0f} ns, spread {spread:.0f} ns, slowest pixel at {100 * low:.0f}% of the mean rate")


main()
