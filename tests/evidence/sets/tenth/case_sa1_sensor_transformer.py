"""
title: a forecaster is cast to double, its causal mask is still float32
expect: collision
thread: https://github.com/natashaklingenbrunn/Transformer-Time-Series-Forecasting/issues/12
fix_at: 45

Expectation, written first: model and series are float64; the causal mask is made by
.float() and masked_fill, and attention wants a mask of the query's dtype.
"""
import torch
from torch import nn


def causal_mask(size):
    allowed = torch.ones(size, size).tril() == 1
    mask = allowed.float()  # BORN
    return mask.masked_fill(~allowed, float("-inf")).masked_fill(allowed, 0.0)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, mask):
        b, n, d = x.shape
        scores_in = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = (t.reshape(b * self.heads, n, -1) for t in scores_in)
        att = torch.baddbmm(mask.expand(len(q), n, n), q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)  # COLLIDES
        y = (att.softmax(-1) @ v).view(b, self.heads, n, -1).transpose(1, 2).reshape(b, n, d)
        return self.norm(x + self.out(y))


class Forecaster(nn.Module):
    def __init__(self, features=7, dim=28):
        super().__init__()
        self.inp = nn.Linear(features, dim)
        self.layers = nn.ModuleList(Layer(dim, 4) for _ in range(2))
        self.head = nn.Linear(dim, 1)

    def forward(self, src):
        mask = causal_mask(src.shape[1])
        x = self.inp(src)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x).squeeze(-1)


def main():
    torch.manual_seed(0)
    model = Forecaster().double()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t = torch.arange(48, dtype=torch.float64)
    series = torch.stack([torch.sin(t * (k + 1) / 9) for k in range(7)], -1).repeat(4, 1, 1)
    for _ in range(3):
        loss = (model(series[:, :-1]) - series[:, 1:, 0]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")


main()
