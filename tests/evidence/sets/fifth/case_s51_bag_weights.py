"""
title: the weights of words in a bag are float32 from the collate function, the table was halved to save memory
expect: collision
fix_at: 42

After https://github.com/meta-pytorch/torchrec/pull/1758 and https://github.com/meta-pytorch/torchrec/pull/1232.
Right: the weights are cast to the table's dtype at the lookup.
"""
import math
from collections import Counter
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(119)


@dataclass
class Bags:
    ids: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor
    clicks: torch.Tensor


class Corpus:
    def __init__(self, documents):
        self.documents = documents
        seen = Counter(w for words in documents for w in set(words))
        self.rarity = {w: math.log(len(documents) / n) + 1 for w, n in seen.items()}

    def collate(self, rows):
        picked = [self.documents[r] for r in rows]
        flat = [w for words in picked for w in words]
        starts = [0]
        for words in picked[:-1]:
            starts.append(starts[-1] + len(words))
        weights = torch.tensor([self.rarity[w] for w in flat])  # BORN
        clicks = torch.tensor([float(len(words) % 2) for words in picked])
        return Bags(torch.tensor(flat), torch.tensor(starts), weights, clicks)


class TwoTower(nn.Module):
    def __init__(self, words, users, dim=16):
        super().__init__()
        self.items = nn.EmbeddingBag(words, dim, mode="sum")
        self.users = nn.Embedding(users, dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def item_side(self, bags):
        return self.items(bags.ids, bags.offsets, per_sample_weights=bags.weights)  # COLLIDES

    def forward(self, users, bags):
        return (self.users(users).float() * self.item_side(bags).float()).sum(-1) + self.bias


def shrink(model, dtype=torch.bfloat16):
    """Tables are most of the model: they alone are stored in half the bytes."""
    for module in model.modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            module.to(dtype)
    return model


corpus = Corpus([torch.randint(0, 60, (int(n),)).tolist() for n in torch.randint(3, 9, (40,))])
model = shrink(TwoTower(60, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows = torch.randint(0, 40, (8,)).tolist()
    bags = corpus.collate(rows)
    loss = F.binary_cross_entropy_with_logits(model(torch.randint(0, 10, (8,)), bags), bags.clicks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
