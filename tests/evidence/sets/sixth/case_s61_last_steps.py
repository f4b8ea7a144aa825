"""
title: sentence lengths are summed from the float mask that the loss needs, the last hidden states are gathered with them
expect: collision
fix_at: 33, 40

After https://github.com/rusty1s/pytorch_cluster/issues/41 and https://github.com/kenchan0226/keyphrase-generation-rl/issues/24.
Right: lengths are integers.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(610)


@dataclass
class Batch:
    ids: torch.Tensor
    kinds: torch.Tensor
    mask: torch.Tensor
    lengths: torch.Tensor


def collate(sentences, pad=0):
    longest = max(len(s) for s in sentences)
    ids = torch.tensor([s + [pad] * (longest - len(s)) for s in sentences])
    mask = (ids != pad).float()
    lengths = mask.sum(1)  # BORN
    order = lengths.argsort(descending=True)
    ids, mask = ids[order], mask[order]
    return Batch(ids, ids[:, 0] % 3, mask, lengths[order])


class LastStep(nn.Module):
    """The hidden state at the end of each sentence."""

    def forward(self, hidden, lengths):
        index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
        return hidden.gather(1, index)[:, 0]  # COLLIDES


class Classifier(nn.Module):
    def __init__(self, words=50, dim=16, kinds=3):
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.rnn, self.last = nn.GRU(dim, dim, batch_first=True), LastStep()
        self.out, self.next = nn.Linear(dim, kinds), nn.Linear(dim, words)

    def forward(self, batch):
        hidden, _ = self.rnn(self.embed(batch.ids))
        return self.out(self.last(hidden, batch.lengths)), self.next(hidden[:, :-1])


def loss_of(model, batch):
    kinds, following = model(batch)
    each = F.cross_entropy(following.flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="none")
    weight = batch.mask[:, 1:].flatten()
    return F.cross_entropy(kinds, batch.kinds) + 0.1 * (each * weight).sum() / weight.sum()


def corpus(count):
    for _ in range(count):
        length = int(torch.randint(3, 12, ()))
        yield torch.randint(1, 50, (length,)).tolist()


model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
sentences = list(corpus(64))
for epoch in range(5):
    for start in range(0, 64, 16):
        loss = loss_of(model, collate(sentences[start:start + 16]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("loss", round(loss.item(), 3))
