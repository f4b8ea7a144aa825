"""
title: unix timestamps subtracted in int64, the gaps cast to float32
expect: clean

Looks like event_times.
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
    def __init__(self, nodes, start, dim=8):
        super().__init__()
        self.encode = TimeEncode(dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.register_buffer("state", torch.zeros(nodes, dim))
        self.register_buffer("last", torch.full((nodes,), start, dtype=torch.long))

    def forward(self, src, msg, t):
        dt = (t - self.last[src]).float()
        return self.cell(torch.cat([msg, self.encode(dt / 60.0)], -1), self.state[src]), dt

    def commit(self, src, h, t):
        self.state[src] = h.detach()
        self.last[src] = t


def events(nodes, rounds, start):
    gen = torch.Generator().manual_seed(0)
    clock = torch.full((nodes,), start)
    for _ in range(rounds):
        clock = clock + torch.randint(1, 60, (nodes,), generator=gen)
        yield torch.arange(nodes), torch.randn(nodes, 8, generator=gen), clock


torch.manual_seed(0)
START = 1_700_000_000
net, readout = Memory(10, START), nn.Linear(8, 1)
opt = torch.optim.Adam([*net.parameters(), *readout.parameters()], lr=1e-3)
for src, msg, clock in events(10, 8, START):
    h, dt = net(src, msg, clock)
    loss = (readout(h).squeeze(-1) - msg[:, 0]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.commit(src, h, clock)
print("loss", loss.item(), "gaps", dt.min().item(), dt.max().item())
