"""
title: gaps between millisecond time stamps are taken in int64 and then become float32
expect: clean
modes: diagnose

The healthy twin of case_s22_event_gaps: no gap is zero.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(21)
START = 1_700_000_000_000


def read_log(users=8, events=20):
    """What a click log holds: kind of the event and Unix time in milliseconds."""
    gaps = torch.randint(200, 5000, (users, events))
    stamps = START + torch.randint(0, 10**9, (users, 1)) + gaps.cumsum(dim=1)
    kinds = torch.randint(0, 12, (users, events))
    return kinds, stamps


class GapFeatures(nn.Module):
    """log(1 + seconds since the event before)."""

    def forward(self, stamps):
        gap = F.pad(stamps[:, 1:] - stamps[:, :-1], (1, 0)).float() / 1000.0
        return torch.log1p(gap)[..., None]


class NextEvent(nn.Module):
    def __init__(self, kinds=12, dim=16):
        super().__init__()
        self.embed = nn.Embedding(kinds, dim)
        self.features = GapFeatures()
        self.mix = nn.Linear(dim + 1, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.kind = nn.Linear(dim, kinds)

    def forward(self, kinds, stamps):
        gaps = self.features(stamps)
        x = torch.cat([self.embed(kinds), gaps], dim=-1)
        states, _ = self.rnn(F.silu(self.mix(x)))
        return self.kind(states), gaps


def main():
    model = NextEvent()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        kinds, stamps = read_log()
        logits, gaps = model(kinds[:, :-1], stamps[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), kinds[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        zeros = (gaps[:, 1:] == 0).float().mean().item()
        print(epoch, "loss", round(loss.item(), 3), "gaps that are zero", round(zeros, 2))


main()
