"""
title: attention with -inf for padding and for the future, rows that have nothing left included
expect: clean
thread: https://github.com/tracel-ai/burn/pull/4697
measured: finite True, gradients finite True, padding changes nothing True

Expectation, written first: with padding on the left and a causal mask whole rows are -inf; the row maximum is floored
before it is subtracted and the sum before it divides, so such rows give zeros and no NaN is ever made. The real tokens
get what they get without padding, up to the rounding of bfloat16.
"""
import torch
from torch import nn

FLOOR = -1e4


def safe_softmax(scores):
    top = scores.amax(-1, keepdim=True).clamp(min=FLOOR)
    e = torch.exp(scores - top)
    return e / e.sum(-1, keepdim=True).clamp(min=1e-6)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, keep):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q.float() @ k.float().transpose(-1, -2)) * (c // self.heads) ** -0.5
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        allowed = causal & keep[:, None, None, :]
        weights = safe_softmax(scores.masked_fill(~allowed, float("-inf")))
        mixed = (weights.to(v.dtype) @ v).transpose(1, 2).reshape(b, n, c)
        return self.out(mixed)


class Encoder(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(Attention(width, 4) for _ in range(depth))

    def forward(self, x, keep):
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), keep)
        return x


def pad_left(items):
    longest = max(len(i) for i in items)
    x = torch.stack([torch.cat([i.new_zeros(longest - len(i), i.shape[1]), i]) for i in items])
    keep = torch.stack([torch.arange(longest) >= longest - len(i) for i in items])
    return x, keep


def main():
    torch.manual_seed(3)
    model = Encoder().to(torch.bfloat16)
    items = [torch.randn(n, 32).to(torch.bfloat16) for n in (4, 9, 13, 6)]
    x, keep = pad_left(items)
    out = model(x, keep)
    out.float().square()[keep].mean().backward()
    grads = all(bool(p.grad.isfinite().all()) for p in model.parameters())
    worst = 0.0
    with torch.no_grad():
        for row, item in zip(out, items):
            alone = model(item[None], torch.ones(1, len(item), dtype=torch.bool))[0]
            worst = max(worst, (row[-len(item) :].float() - alone.float()).abs().max().item())
    print(f"finite {bool(out.isfinite().all())}, gradients finite {grads}, padding changes nothing {worst < 0.05}")


main()
