"""
title: EMA of a bf16 adapter whose averaged copy is kept in bf16 as well
expect: silent:lost-update
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417
measured: loss 0.894, average went 21 % of the way
widened: loss 0.894, average went 53 % of the way
fix_at: 31

Expectation, written first: with decay 0.999 a step of the average is a thousandth of
the gap, below half a bf16 step of the average itself, so it stays where it started.
The live adapter is bf16 too, but its own steps are large; making it float32 alone
changes nothing.
"""
import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, dim=16, rank=4):
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, dim) * 0.5)
        self.up = nn.Parameter(torch.randn(dim, rank) * 0.5)

    def forward(self, x):
        return x + (x @ self.down.t()) @ self.up.t()


class EMA:
    def __init__(self, model, decay, dtype):
        self.decay = decay
        self.shadow = {n: p.detach().to(dtype).clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for n, p in model.named_parameters():
            s = self.shadow[n]
            s.add_((p.to(s.dtype) - s) * (1 - self.decay))


def travelled(ema, start, model):
    moved = sum((ema.shadow[n].float() - start[n]).pow(2).sum() for n in start).sqrt()
    gap = sum((p.detach().float() - start[n]).pow(2).sum() for n, p in model.named_parameters()).sqrt()
    return (moved / gap).item()


def main(steps=800):
    torch.manual_seed(0)
    model = Adapter().to(torch.bfloat16)
    start = {n: p.detach().float().clone() for n, p in model.named_parameters()}
    ema = EMA(model, decay=0.999, dtype=torch.bfloat16)  # BORN
    mixing = torch.randn(16, 16) * 0.3
    for step in range(steps):
        x = torch.randn(32, 16)
        loss = (model(x.to(model.up.dtype)).float() - x @ mixing).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.3 * p.grad
                p.grad = None
        ema.update(model)
    print(f"loss {loss.item():.3f}, average went {100 * travelled(ema, start, model):.0f} % of the way")


main()
