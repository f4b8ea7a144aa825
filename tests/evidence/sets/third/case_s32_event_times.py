"""
title: unix timestamps in float32 before the differences of a temporal graph network
expect: silent:precision-loss|downcast
modes: diagnose

After temporal graph models (TGN) that call .float() on unix seconds: the step is 128 s at 1.7e9.
Damage: all of the time gaps are 0 or 128 instead of 1..60 seconds. Right change: subtract in int64, then float.
"""
import torch
import torch.nn as nn


class TimeEncode(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(1, dim)

    def forward(self, dt):
        return torch.cos(self.w(dt.unsqueeze(-1)))


class Memory(nn.Module):
    def __init__(self, nodes, dim=8):
        super().__init__()
        self.encode = TimeEncode(dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.register_buffer("state", torch.zeros(nodes, dim))
        self.register_buffer("last", torch.zeros(nodes))  # BORN

    def forward(self, src, msg, t):
        dt = t - self.last[src]  # BORN
        h = self.cell(torch.cat([msg, self.encode(dt / 60.0)], -1), self.state[src])
        return h, dt

    def commit(self, src, h, t):
        self.state[src] = h.detach()
        self.last[src] = t


def events(nodes, rounds):
    gen = torch.Generator().manual_seed(0)
    clock = torch.full((nodes,), 1_700_000_000)
    for _ in range(rounds):
        clock = clock + torch.randint(1, 60, (nodes,), generator=gen)
        yield torch.arange(nodes), torch.randn(nodes, 8, generator=gen), clock


torch.manual_seed(0)
net = Memory(10)
readout = nn.Linear(8, 1)
opt = torch.optim.Adam([*net.parameters(), *readout.parameters()], lr=1e-3)
gaps = []
for src, msg, clock in events(10, 8):
    t = clock.float()  # BORN
    h, dt = net(src, msg, t)
    loss = (readout(h).squeeze(-1) - msg[:, 0]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.commit(src, h, t)
    gaps.append(dt)
gaps = torch.cat(gaps[1:])
print("gaps", sorted(set(gaps.tolist()))[:6], "share outside 1..60:", ((gaps < 1) | (gaps > 60)).float().mean().item())
