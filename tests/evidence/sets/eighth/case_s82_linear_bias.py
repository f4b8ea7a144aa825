"""
title: a decoder with linear distance biases on a long context
expect: silent:precision-loss|downcast
thread: https://github.com/HabanaAI/vllm-fork/pull/503
measured: length 128: weight of the newest token in head 0 0.6416 / length 1024: weight of the newest token in head 0 0.4951 / length 4000: weight of the newest token in head 0 0.1258
widened: length 128: weight of the newest token in head 0 0.6416 / length 1024: weight of the newest token in head 0 0.6422 / length 4000: weight of the newest token in head 0 0.6339

Expectation, written first: the key positions are made in bf16, in which whole numbers
above 256 cannot all be written, so neighbouring tokens share one distance and the weight
that belongs to the newest token is spread over its neighbours.
BORN is the factory of the positions; float32 there mends it.
"""
import torch
from torch import nn


def head_slopes(heads):
    return torch.tensor([2.0 ** (-2.0 * h / heads) for h in range(heads)])


class LinearBias(nn.Module):
    def __init__(self, heads, max_len):
        super().__init__()
        positions = torch.arange(max_len, dtype=torch.bfloat16)  # BORN
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("slopes", head_slopes(heads))

    def forward(self, length):
        pos = self.positions[:length]
        return self.slopes[:, None] * (pos - pos[-1])[None, :]


class LastTokenAttention(nn.Module):
    def __init__(self, width=32, heads=4, max_len=4096):
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.bias = LinearBias(heads, max_len)

    def weights(self, x):
        t, w = x.shape
        q = self.q(x[-1]).view(self.heads, self.dim)
        k = self.k(x).view(t, self.heads, self.dim)
        scores = torch.einsum("hd,thd->ht", q, k) / self.dim ** 0.5
        return torch.softmax(0.05 * scores + self.bias(t), dim=-1)

    def forward(self, x):
        v = self.v(x).view(len(x), self.heads, self.dim)
        return torch.einsum("ht,thd->hd", self.weights(x), v).reshape(-1)


def main():
    torch.manual_seed(0)
    layer = LastTokenAttention().eval()
    for length in (128, 1024, 4000):
        x = torch.randn(length, 32)
        with torch.no_grad():
            newest = layer.weights(x)[0, -1].item()
        print("length %d: weight of the newest token in head 0 %.4f" % (length, newest))


if __name__ == "__main__":
    main()
