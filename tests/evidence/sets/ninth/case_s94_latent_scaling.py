"""
title: scaling factor of cached half latents from half running moments
expect: silent:overflow|lost-update
thread: https://github.com/pytorch/pytorch/issues/12115
measured: scaling factor 0.0000, std of scaled latents 0.000
widened: scaling factor 0.4034, std of scaled latents 1.000

Expectation, written first: the running sum of squares is half and passes 65504 after a
few batches; the scaling factor becomes zero and the trainer would see empty latents.
The cached latents are half as well, which costs three digits and nothing else.
"""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 4, 3, 2, 1))

    def forward(self, x):
        return 24 * self.net(x)


class LatentCache:
    def __init__(self, dtype):
        self.dtype, self.items = dtype, []

    def add(self, latents):
        self.items.extend(latents.to(self.dtype).unbind(0))

    def batches(self, size=16):
        for i in range(0, len(self.items), size):
            yield torch.stack(self.items[i : i + size])


class RunningMoments:
    def __init__(self, dtype):
        self.count = 0
        self.total = torch.zeros((), dtype=dtype)
        self.square = torch.zeros((), dtype=dtype)

    def update(self, x):
        self.count += x.numel()
        self.total += x.float().sum().to(self.total.dtype)
        self.square += x.float().pow(2).sum().to(self.square.dtype)

    def scaling_factor(self):
        mean = self.total.double() / self.count
        var = self.square.double() / self.count - mean ** 2
        return (1 / var.sqrt()).item()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    vae, cache = Encoder(), LatentCache(torch.float16)
    for _ in range(8):
        cache.add(vae(torch.rand(16, 3, 32, 32) * 2 - 1))
    moments = RunningMoments(torch.float16)  # BORN
    for batch in cache.batches():
        moments.update(batch)
    factor = moments.scaling_factor()
    scaled = torch.stack(cache.items).double() * factor
    print(f"scaling factor {factor:.4f}, std of scaled latents {scaled.std().item():.3f}")


main()
