"""
title: Flow-matching sampler takes its time grid from NumPy
expect: collision
thread: https://github.com/facebookresearch/flow_matching/issues/37

Expectation, written first.  The velocity network is float32.  The solver's
time grid comes from np.linspace, i.e. float64, and torch.from_numpy keeps it.
The time is appended to the state by torch.cat, which promotes the whole input
to float64; the first Linear refuses.  BORN is the from_numpy line that makes
the grid (a .float() there mends it); COLLIDES is the call of the network in
velocity().
"""
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class VelocityNet(nn.Module):
    def __init__(self, dim=2, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, dim))

    def forward(self, xt):
        return self.net(xt)


def moons(n):
    a = torch.rand(n) * torch.pi
    side = torch.randint(0, 2, (n,)).float()
    x = torch.stack([torch.cos(a) + side, torch.sin(a) * (1 - 2 * side)], 1)
    return x + 0.05 * torch.randn(n, 2)


def train(net, steps=25):
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(steps):
        x1 = moons(256)
        x0 = torch.randn_like(x1)
        t = torch.rand(256, 1)
        xt = (1 - t) * x0 + t * x1
        loss = ((net(torch.cat([xt, t], 1)) - (x1 - x0)) ** 2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()


class MidpointSolver:
    def __init__(self, net, n_steps=16):
        self.net = net
        self.grid = torch.from_numpy(np.linspace(0.0, 1.0, n_steps + 1))  # BORN

    def velocity(self, x, t):
        column = t.expand(x.size(0), 1)
        return self.net(torch.cat([x, column], 1))  # COLLIDES

    @torch.no_grad()
    def sample(self, x):
        for t0, t1 in zip(self.grid[:-1], self.grid[1:]):
            h = (t1 - t0).item()
            mid = x + 0.5 * h * self.velocity(x, t0)
            x = x + h * self.velocity(mid, (t0 + t1) / 2)
        return x


if __name__ == "__main__":
    net = VelocityNet()
    print(f"training loss = {train(net):.3f}")
    samples = MidpointSolver(net).sample(torch.randn(200, 2))
    print("sample mean:", samples.mean(0).tolist())
