"""
title: RMSNorm on float16 activations with large outliers: the squares are taken in float32
expect: clean
thread: https://github.com/xlite-dev/LeetCUDA/pull/335
measured: rms of the output 1.000, largest 8.00, outlier channel 6.397; mean of the other channels 0.0357  (with float64 in its place: rms
    of the output 1.000, largest 8.00, outlier channel 6.397; mean of the other channels 0.0357)
suspect: 64 half activations: guarded (squared in float32, only the normalised result is half)

Expectation, written first: The activations are float16 and reach 900, whose squares would overflow. The norm casts to float32 first and
    only the normalised result goes back to half, so the output agrees with float64 to half precision.
"""
import torch
from torch import nn


class Qwen3RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return (self.weight * hidden_states).to(input_dtype)


class MLP(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.up, self.down = nn.Linear(dim, inner, bias=False), nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.up(x)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.mlp = Qwen3RMSNorm(dim), MLP(dim, 2 * dim)

    def forward(self, x):
        return x + self.mlp(self.norm(x).float()).to(x.dtype)


class Stack(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.blocks, self.final = nn.ModuleList(Block(dim) for _ in range(depth)), Qwen3RMSNorm(dim)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.final(x)


torch.manual_seed(0)
stack = Stack()
x = torch.randn(32, 64)
x[:, 5] *= 300.0
x[:, 40] *= 120.0
with torch.no_grad():
    out = stack(x.to(torch.float16))
print(f"rms of the output {out.float().pow(2).mean().sqrt():.3f}, largest {out.float().abs().max():.2f}, outlier channel {out[:, 5].float().abs().mean():.3f}")
print(f"mean of the other channels {out[:, 6:40].float().abs().mean():.4f}")
