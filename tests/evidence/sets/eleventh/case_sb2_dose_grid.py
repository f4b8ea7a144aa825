"""
title: a radiotherapy dose grid with unsigned pixels is read as signed
expect: silent:integer-overflow|overflow|round-trip
thread: https://github.com/rexcardan/Evil-DICOM/issues/107
measured: tumour above 57 Gy 0.0%, mean of the tumour -3.1 Gy, of the cord 1.8 Gy
widened: tumour above 57 Gy 86.0%, mean of the tumour 59.3 Gy, of the cord 1.8 Gy

Expectation, written first: the pixels are unsigned sixteen bit and the planner scales the peak to 65000; read as
int16 everything above half the peak is negative, and the hottest voxels look cold.
"""
import numpy as np
import torch


class DoseFile:
    """the part of an RTDose object that matters here"""

    def __init__(self, dose, peak_code=65_000):
        self.rows, self.cols = dose.shape
        self.grid_scaling = dose.max() / peak_code
        self.bits_stored, self.pixel_representation = 16, 0
        self.pixel_data = np.round(dose / self.grid_scaling).astype("<u2").tobytes()


class DoseMatrix:
    def __init__(self, ds):
        raw = np.frombuffer(ds.pixel_data, dtype="<i2")  # BORN
        codes = torch.from_numpy(raw.astype(np.float32))
        self.gray = codes.view(ds.rows, ds.cols) * ds.grid_scaling

    def volume_above(self, mask, level):
        return (self.gray[mask] >= level).double().mean().item()

    def histogram(self, mask, bins=60):
        d = self.gray[mask]
        counts = torch.histc(d, bins=bins, min=0, max=60)
        return counts.flip(0).cumsum(0).flip(0) / mask.sum()


def plan(size=48):
    y, x = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    r = np.hypot(x - 22, y - 25)
    dose = 60.0 / (1 + np.exp((r - 11) / 1.5)) + 3.0 * np.exp(-((x - 30) / 9.0) ** 2)
    return dose, torch.from_numpy(r < 8), torch.from_numpy((r > 16) & (r < 20))


def main():
    dose, tumour, cord = plan()
    matrix = DoseMatrix(DoseFile(dose))
    mean = matrix.gray[tumour].mean().item()
    print(f"tumour above 57 Gy {100 * matrix.volume_above(tumour, 57):.1f}%, mean of the tumour {mean:.1f} Gy, of the cord {matrix.gray[cord].mean().item():.1f} Gy")


main()
