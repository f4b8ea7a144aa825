"""
title: running mean over bf16 checkpoints kept in bf16
expect: silent:lost-update|precision-loss
thread: https://github.com/NVIDIA/Megatron-LM/pull/5114
measured: excess loss x1e4: last snapshot 25.63, average 26.84
widened: excess loss x1e4: last snapshot 25.63, average 0.06
fix_at: 44

Expectation, written first: late in the average a snapshot moves the mean by 1/n of the
gap, which bf16 loses, so the mean depends on the first few snapshots. The snapshots are
bf16 as well; their roundings average out, and float32 snapshots alone do not help.
"""
import torch


class Run:
    """Weights wander around an optimum, first above it, as with a large learning rate."""

    def __init__(self, n=256, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.gen = gen
        self.best = torch.randn(n, generator=gen)
        self.offset = 0.3 * torch.randn(n, generator=gen)

    def snapshots(self, count):
        for i in range(count):
            drift = self.offset * (0.9 ** i)
            noise = 0.05 * torch.randn(self.best.shape, generator=self.gen)
            yield self.best + drift + noise

    def excess_loss(self, w):
        return (w.double() - self.best.double()).pow(2).mean().item()


def save(weights, dtype):
    return {"w": weights.to(dtype)}


class Soup:
    def __init__(self, dtype):
        self.dtype, self.n, self.mean = dtype, 0, None

    def add(self, state):
        w = state["w"].to(self.dtype)
        self.n += 1
        if self.mean is None:
            self.mean = w.clone()
        else:
            self.mean += (w - self.mean) / self.n


def main(count=1500):
    run = Run()
    soup = Soup(dtype=torch.bfloat16)  # BORN
    single = 0.0
    for weights in run.snapshots(count):
        ckpt = save(weights, torch.bfloat16)
        soup.add(ckpt)
        single = run.excess_loss(ckpt["w"])
    print(f"excess loss x1e4: last snapshot {1e4 * single:.2f}, average {1e4 * run.excess_loss(soup.mean):.2f}")


main()
