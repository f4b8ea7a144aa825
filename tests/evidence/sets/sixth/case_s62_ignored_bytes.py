"""
title: the labels of a byte model are stored as bytes, the mark for padding becomes the byte 156
expect: silent:overflow|wraparound|integer-overflow|downcast
fix_at: 22

After https://github.com/scikit-learn/scikit-learn/pull/33391, https://github.com/tensorflow/models/pull/6641 and
https://github.com/scverse/spatialdata/issues/1215.
Right: labels are stored as int16.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(720)

IGNORED = -100


class Shard:
    """Texts of different lengths in one block, as it is written to disk."""

    def __init__(self, texts, length, dtype=torch.uint8):
        ids = torch.zeros(len(texts), length, dtype=torch.long)
        labels = torch.full((len(texts), length), IGNORED)
        for row, text in enumerate(texts):
            raw = torch.tensor(list(text.encode()))
            ids[row, :len(raw)] = raw
            labels[row, :len(raw) - 1] = raw[1:]
        self.ids = ids.to(torch.uint8)
        self.labels = labels.to(dtype)  # BORN

    def batch(self, rows):
        return self.ids[rows].long(), self.labels[rows].long()


class ByteModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(256, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 256)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


texts = ["the cat sat", "a dog ran off", "birds", "rain on the roof of a house", "we go", "no"] * 4
shard = Shard(texts, 40)
model = ByteModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    ids, labels = shard.batch(torch.randint(0, len(texts), (12,)))
    loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
ids, labels = shard.batch(torch.arange(6))
real = torch.arange(39) < torch.tensor([len(t) - 1 for t in texts[:6]])[:, None]
with torch.no_grad():
    guess = model(ids)
right = (guess[:, :-1].argmax(-1) == ids[:, 1:])[real].float().mean().item()
print("next byte right", round(right, 3), "loss of the texts", round(F.cross_entropy(guess[:, :-1][real], ids[:, 1:][real]).item(), 3),
      "chance of byte 156", round(guess[:, :-1].softmax(-1)[..., 156][real].mean().item(), 4))
