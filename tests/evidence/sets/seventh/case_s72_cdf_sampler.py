"""
title: Inverse-CDF token sampling over a half-precision cumulative distribution
expect: silent:lost-update|precision-loss|downcast|round-trip
thread: https://github.com/ROCm/AMDMIGraphX/pull/3817
measured: share of the tail = 0.297 (true 0.300), distinct tail tokens drawn = 77
widened: share of the tail = 0.297 (true 0.300), distinct tail tokens drawn = 2336

Expectation, written first.  Each of the 6000 tail tokens has probability
5e-5.  The cumulative sum is returned in bfloat16; above 0.5 its step is 0.004,
so about eighty neighbouring tokens share one value and searchsorted always
returns the first of them: most of the tail can never be drawn.  BORN is the
cast of the probabilities to bfloat16 before the cumulative sum; in float32 the
tail is drawn.
"""
import torch
from torch import nn

torch.manual_seed(0)


class UnigramHead(nn.Module):
    """Seventy per cent of the mass on a few frequent tokens, the rest flat."""

    def __init__(self, frequent=64, tail=6000):
        super().__init__()
        logits = torch.cat([torch.full((frequent,), 0.7 / frequent), torch.full((tail,), 0.3 / tail)]).log()
        self.logits = nn.Parameter(logits)
        self.frequent = frequent

    def forward(self, n):
        return self.logits.expand(n, -1)


class Sampler:
    def __init__(self, temperature=1.0, seed=0):
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits):
        probs = torch.softmax(logits / self.temperature, -1)
        probs = probs.to(torch.bfloat16)  # BORN
        cdf = probs.cumsum(-1)
        cdf = cdf / cdf[..., -1:]
        u = torch.rand(logits.size(0), 1, generator=self.generator)
        index = torch.searchsorted(cdf.float(), u, right=True)
        return index.clamp(max=logits.size(-1) - 1).squeeze(-1)


@torch.no_grad()
def main(rounds=20, batch=500):
    head, sampler = UnigramHead(), Sampler()
    seen = torch.zeros(head.logits.numel(), dtype=torch.long)
    for _ in range(rounds):
        seen += torch.bincount(sampler(head(batch)), minlength=seen.numel())
    tail = seen[head.frequent:]
    share = tail.sum().item() / seen.sum().item()
    print(f"share of the tail = {share:.3f} (true 0.300), distinct tail tokens drawn = {(tail > 0).sum().item()}")


if __name__ == "__main__":
    main()
