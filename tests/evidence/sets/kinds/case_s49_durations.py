"""
title: aligned durations are seconds times the frame rate, rounded but still floats, the length regulator repeats with them
expect: collision
fix_at: 25, 34, 46

After https://github.com/ming024/FastSpeech2/issues/44 and https://github.com/espnet/espnet/issues/2842.
Right: the rounded durations are cast to integers.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(16)


class Alignment:
    """Ends of phones in seconds, as the aligner writes them."""

    def __init__(self, ends, rate=100):
        self.ends, self.rate = ends, rate

    def frames(self):
        edges = torch.tensor([0.0, *self.ends]) * self.rate  # BORN
        return edges.round().diff()


class Regulator(nn.Module):
    def forward(self, x, durations):
        return pad_sequence([self.expand(*pair) for pair in zip(x, durations)], batch_first=True)

    def expand(self, phones, counts):
        return phones.repeat_interleave(counts, dim=0)  # COLLIDES


class Model(nn.Module):
    def __init__(self, dim=12, mels=8):
        super().__init__()
        self.embed, self.regulate = nn.Embedding(20, dim), Regulator()
        self.decode = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, mels)

    def forward(self, phones, alignments):
        durations = [a.frames() for a in alignments]
        states, _ = self.decode(self.regulate(self.embed(phones), durations))
        return self.out(states)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(2):
    alignments = [Alignment([0.05, 0.12, 0.2]), Alignment([0.04, 0.1, 0.16])]
    mel = model(torch.randint(0, 20, (2, 3)), alignments)
    loss = F.l1_loss(mel, torch.zeros_like(mel))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
