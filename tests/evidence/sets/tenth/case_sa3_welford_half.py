"""
title: latents come in half, their running mean and variance are merged in float64
expect: clean
thread: https://github.com/stan-dev/stan/issues/2816
measured: scaling [1.993, 0.5, 1.005, 0.331], relative gap to two passes 3.0e-15

Expectation, written first: each batch is widened first and its own mean and squared
deviations are merged by Chan's rule; the statistics are those of the half numbers themselves.
"""
import torch


class RunningMoments:
    def __init__(self, channels):
        self.count = 0
        self.mean = torch.zeros(channels, dtype=torch.float64)
        self.m2 = torch.zeros(channels, dtype=torch.float64)

    def update(self, latents):
        x = latents.double().transpose(0, 1).flatten(1)
        n = x.shape[1]
        mean = x.mean(1)
        m2 = (x - mean[:, None]).pow(2).sum(1)
        delta = mean - self.mean
        total = self.count + n
        self.mean += delta * n / total
        self.m2 += m2 + delta ** 2 * self.count * n / total
        self.count = total

    def std(self):
        return (self.m2 / (self.count - 1)).sqrt()


def latents(batches, gen):
    centre = torch.tensor([30.0, -12.0, 4.0, 0.0]).view(1, 4, 1, 1)
    spread = torch.tensor([0.5, 2.0, 1.0, 3.0]).view(1, 4, 1, 1)
    for _ in range(batches):
        yield (centre + spread * torch.randn(8, 4, 8, 8, generator=gen)).to(torch.float16)


def main():
    gen = torch.Generator().manual_seed(0)
    moments, kept = RunningMoments(4), []
    for batch in latents(60, gen):
        moments.update(batch)
        kept.append(batch)
    every = torch.cat(kept).double().transpose(0, 1).flatten(1)
    gap = (moments.std() / every.std(1) - 1).abs().max().item()
    scale = [round(v, 3) for v in (1 / moments.std()).tolist()]
    print(f"scaling {scale}, relative gap to two passes {gap:.1e}")


main()
