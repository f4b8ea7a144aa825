"""
title: scan line times of a kymograph are zero because nanosecond timestamps are reconstructed as float32 images
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/lumicks/pylake/pull/209
measured: 24 lines, 35.9 photons per pixel, line time 0.00 ms
widened: 24 lines, 35.9 photons per pixel, line time 18.75 ms ; innocent: 24 lines, 35.9 photons per pixel, line time 0.00 ms
suspect: 45 range (photon counts per pixel are stored as int16, and a pixel has some dozens of photons)

Expectation, written first: one routine reconstructs both photon counts and timestamps into images and turns everything into float32;
nanoseconds since 1970 are about 1.6e18, where float32 has a step of 137 s, so all lines get one and the same time and their period is
zero. The narrow integer type of the counts never comes near its end.
"""
import torch

PIXEL_END = 2
LINE_SAMPLES = 240


class Slice:
    def __init__(self, data, timestamps):
        self.data = data
        self.timestamps = timestamps


def reconstruct_image(data, infowave, shape, reduce, dtype=torch.float32):
    ends = torch.nonzero(infowave == PIXEL_END).flatten()
    starts = torch.cat([torch.zeros(1, dtype=ends.dtype), ends[:-1] + 1])
    values = data.to(dtype)  # BORN
    pixels = torch.stack([reduce(values[a : b + 1]) for a, b in zip(starts.tolist(), ends.tolist())])
    return pixels.reshape(shape)


class Kymo:
    def __init__(self, photons, infowave, pixels_per_line):
        self.photons = photons
        self.infowave = infowave
        self.pixels_per_line = pixels_per_line

    @property
    def _shape(self):
        return (-1, self.pixels_per_line)

    def image(self):
        counts = reconstruct_image(self.photons.data, self.infowave, self._shape, torch.sum)
        return counts.to(torch.int16)

    def timestamps(self):
        mid = lambda stamps: stamps[stamps.numel() // 2]
        return reconstruct_image(self.photons.timestamps, self.infowave, self._shape, mid, dtype=torch.float32)  # BORN

    def line_time_seconds(self):
        first_pixel = self.timestamps()[:, 0]
        return (first_pixel[1:] - first_pixel[:-1]).double().mean().item() * 1e-9


def record(lines=24, pixels_per_line=20, sample_ns=78125):
    generator = torch.Generator().manual_seed(3)
    n = lines * LINE_SAMPLES
    start = 1592916040906356300
    timestamps = start + torch.arange(n, dtype=torch.int64) * sample_ns
    photons = torch.poisson(torch.full((n,), 3.0), generator=generator).to(torch.int64)
    infowave = torch.ones(n, dtype=torch.int8)
    infowave[LINE_SAMPLES // pixels_per_line - 1 :: LINE_SAMPLES // pixels_per_line] = PIXEL_END
    return Slice(photons, timestamps), infowave, pixels_per_line


def main():
    photons, infowave, pixels_per_line = record()
    kymo = Kymo(photons, infowave, pixels_per_line)
    image = kymo.image()
    line_time = kymo.line_time_seconds()
    print(f"{image.shape[0]} lines, {image.float().mean():.1f} photons per pixel, line time {1e3 * line_time:.2f} ms")


if __name__ == "__main__":
    main()
