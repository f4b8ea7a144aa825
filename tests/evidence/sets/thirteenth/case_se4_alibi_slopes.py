"""
title: the slopes of linear attention biases pass through the module's float16 and back
expect: clean
thread: https://github.com/Dao-AILab/flash-attention/pull/846
measured: mean reach of the first heads 1.6, 3.6, 7.4, 15.6, 31.4 tokens; weight of the newest 0.38, 0.18, 0.10, 0.05, 0.03

Expectation, written first: the suspect is the half() of the module, which takes the slopes buffer along, but with
eight heads the slopes are powers of two and come back exactly; the distances are integers in float32 and the bias is
never rounded. The attention is that of a wide run.
"""
import torch
from torch import nn


def alibi_slopes(heads):
    return torch.tensor([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)])


class MHA(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.register_buffer("slopes", alibi_slopes(heads))

    def bias(self, n):
        place = torch.arange(n, dtype=torch.float32)
        distance = (place[None] - place[:, None]).abs()
        return -self.slopes.float()[:, None, None] * distance

    def forward(self, q, k):
        scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / q.shape[-1] ** 0.5
        scores = scores + self.bias(len(q))
        hidden = torch.ones(len(q), len(q)).triu(1).bool()
        return scores.masked_fill(hidden, float("-inf")).softmax(-1)


class Probe:
    """how far back each head looks"""

    def __init__(self, weights):
        self.weights = weights

    def reach(self):
        n = self.weights.shape[-1]
        age = (n - 1 - torch.arange(n)).float()
        return (self.weights[:, -1] * age).sum(-1)

    def newest(self):
        return self.weights[:, -1, -1]


class Model:
    def __init__(self, heads, dtype):
        self.attention = MHA(heads).to(dtype)
        self.dtype = dtype

    def __call__(self, length, dim, gen):
        q, k = (0.3 * torch.randn(length, self.attention.heads, dim, generator=gen) for _ in range(2))
        return Probe(self.attention(q.to(self.dtype), k.to(self.dtype)))


@torch.no_grad()
def main():
    probe = Model(8, torch.float16)(1200, 32, torch.Generator().manual_seed(52))
    reach = ", ".join(f"{v:.1f}" for v in probe.reach().tolist()[:5])
    newest = ", ".join(f"{v:.2f}" for v in probe.newest().tolist()[:5])
    print(f"mean reach of the first heads {reach} tokens; weight of the newest {newest}")


main()
