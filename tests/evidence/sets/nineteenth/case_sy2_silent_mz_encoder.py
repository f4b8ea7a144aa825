"""
title: Peaks of a spectrum get the same encoding because m/z is cast to bf16 with the intensities
expect: silent:precision-loss|downcast
thread: https://github.com/wfondrie/depthcharge/pull/82
measured: distinct fragment encodings 205 of 400 | peaks annotated correctly 0.54
widened: distinct fragment encodings 400 of 400 | peaks annotated correctly 1.00
innocent: distinct fragment encodings 205 of 400 | peaks annotated correctly 0.54
suspect: 44 scale-only

Expectation, written first: The m/z values, some hundreds with differences that matter in the second decimal, are cast to the model's bf16 before the sinusoids are
taken, so peaks up to two or four units apart are encoded alike and a library search picks a wrong fragment. The intensities, cast the same way, only
scale the encoding and lose a third of a percent.
"""
import math

import torch
import torch.nn as nn


class FloatEncoder(nn.Module):
    def __init__(self, d_model, min_wavelength=0.001, max_wavelength=10_000):
        super().__init__()
        d_sin = d_model // 2
        base = min_wavelength / (2 * math.pi)
        scale = max_wavelength / min_wavelength
        self.sin_term = base * scale ** (torch.arange(0, d_sin).float() / (d_sin - 1))
        self.cos_term = base * scale ** (torch.arange(0, d_model - d_sin).float() / (d_model - d_sin - 1))

    def forward(self, X):
        sin_mz = torch.sin(X[..., None] / self.sin_term)
        cos_mz = torch.cos(X[..., None] / self.cos_term)
        return torch.cat([sin_mz, cos_mz], dim=-1)


class PeakEncoder(nn.Module):
    def __init__(self, d_model=128, dtype=torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self.mz_encoder = FloatEncoder(d_model)
        self.combiner = nn.Linear(d_model, d_model, bias=False).to(dtype)

    def forward(self, mz_array, intensity_array):
        mz_array = mz_array.to(self.dtype)  # BORN
        intensity_array = intensity_array.to(self.dtype)
        mz = self.mz_encoder(mz_array)
        out = self.combiner(mz.to(self.combiner.weight.dtype))
        return out.float() * intensity_array[..., None].float()


class SpectrumLibrary:
    def __init__(self, encoder, mz):
        self.encoder = encoder
        self.table = nn.functional.normalize(encoder(mz, torch.ones_like(mz)), dim=-1)

    def annotate(self, mz, intensity):
        query = nn.functional.normalize(self.encoder(mz, intensity), dim=-1)
        return (query @ self.table.T).argmax(dim=-1)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    fragments = torch.sort(200.0 + 1200.0 * torch.rand(400, generator=g)).values
    library = SpectrumLibrary(PeakEncoder(), fragments)
    picked = torch.randperm(400, generator=g)[:150]
    intensity = 0.05 + torch.rand(150, generator=g)
    assigned = library.annotate(fragments[picked], intensity)
    correct = (assigned == picked).float().mean().item()
    rounded = torch.unique(library.table, dim=0).shape[0]
    print(f"distinct fragment encodings {rounded} of 400")
    print(f"peaks annotated correctly {correct:.2f}")


if __name__ == "__main__":
    main()
