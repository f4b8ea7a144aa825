"""
title: Positions inside an expert are counted by a cumulative sum in the gate's bfloat16
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/microsoft/Tutel/pull/30
measured: slots used = 1739 for 4096 tokens, tokens with a wrong output = 42.2%
widened: slots used = 4096 for 4096 tokens, tokens with a wrong output = 0.0%

Expectation, written first.  The dispatch mask is a one-hot in the dtype of the
gates, bfloat16.  Its cumulative sum gives every token its slot in the buffer of
its expert; above 256 the slots are rounded to multiples of 2 and 4, several
tokens get one slot and the later overwrites the earlier.  The layer returns
other tokens' outputs.  BORN is the line that makes the mask in the gate's
dtype; an integer or float32 mask mends it.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Top1Gate(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.wg = nn.Linear(dim, experts, bias=False)

    def forward(self, x):
        gates = self.wg(x).softmax(-1)
        expert = gates.argmax(-1)
        mask = F.one_hot(expert, gates.size(-1)).to(gates.dtype)  # BORN
        location = torch.cumsum(mask, 0) - 1
        location = (location * mask).sum(-1).long()
        return gates, expert, location


class MoELayer(nn.Module):
    def __init__(self, dim=16, experts=4, capacity=2000):
        super().__init__()
        self.gate, self.capacity = Top1Gate(dim, experts), capacity
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim)) for _ in range(experts))

    def forward(self, x):
        gates, expert, location = self.gate(x)
        keep = location < self.capacity
        buffer = x.new_zeros(len(self.experts), self.capacity, x.size(-1))
        buffer[expert[keep], location[keep]] = x[keep]
        done = torch.stack([f(b) for f, b in zip(self.experts, buffer)])
        self.dispatch = (expert, location)
        y = done[expert[keep], location[keep]] * gates[keep].gather(1, expert[keep, None])
        out = torch.zeros_like(x)
        out[keep] = y.to(x.dtype)
        return out

    def dense(self, x):
        gates, expert, _ = self.gate(x)
        out = torch.stack([f(x) for f in self.experts])[expert, torch.arange(x.size(0))]
        return out * gates.gather(1, expert[:, None])


@torch.no_grad()
def main(tokens=4096):
    layer = MoELayer().to(torch.bfloat16).eval()
    x = torch.randn(tokens, 16, dtype=torch.bfloat16)
    y, reference = layer(x), layer.dense(x)
    expert, location = layer.dispatch
    slots = torch.unique(expert * 10_000 + location).numel()
    wrong = ((y - reference).abs().amax(-1) > 0.15).float().mean().item()
    print(f"slots used = {slots} for {tokens} tokens, tokens with a wrong output = {100 * wrong:.1f}%")


if __name__ == "__main__":
    main()
