"""
title: the reconstruction loss of a graph autoencoder guards its logarithm with 1e-15 in half
expect: silent:underflow|overflow
thread: https://github.com/pyg-team/pytorch_geometric/pull/2106
measured: nodes whose embedding is not a number: 100%
widened: nodes whose embedding is not a number: 0%

Expectation, written first: 1e-15 is zero in half and sigmoid of a large score is exactly one;
log(1 - 1 + 0) is minus infinity and the model is NaN after one step.
"""
import torch
from torch import nn

EPS = 1e-15


class InnerProductDecoder:
    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, z, edges):
        score = (z[edges[0]] * z[edges[1]]).sum(-1)
        return torch.sigmoid(score.to(self.dtype))  # BORN


class GAE(nn.Module):
    def __init__(self, nodes, dim, dtype):
        super().__init__()
        self.z = nn.Parameter(torch.randn(nodes, dim) * 1.6)
        self.decoder = InnerProductDecoder(dtype)

    def recon_loss(self, pos, neg):
        pos_loss = -torch.log(self.decoder(self.z, pos) + EPS).float().mean()
        neg_loss = -torch.log(1 - self.decoder(self.z, neg) + EPS).float().mean()
        return pos_loss + neg_loss


def communities(n=200, groups=4, seed=0):
    gen = torch.Generator().manual_seed(seed)
    g = torch.arange(n) % groups
    pairs = torch.randint(0, n, (2, 6000), generator=gen)
    same = g[pairs[0]] == g[pairs[1]]
    return pairs[:, same & (pairs[0] != pairs[1])], pairs[:, ~same]


def main():
    torch.manual_seed(0)
    pos, neg = communities()
    model = GAE(200, 8, dtype=torch.float16)  # BORN
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(60):
        opt.zero_grad()
        model.recon_loss(pos, neg).backward()
        opt.step()
    lost = (~torch.isfinite(model.z)).any(-1).float().mean().item()
    print(f"nodes whose embedding is not a number: {100 * lost:.0f}%")


main()
