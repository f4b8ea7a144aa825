"""
title: embedding tables in float16, the per-sample weights of the jagged features in float32
expect: collision
thread: https://github.com/meta-pytorch/torchrec/pull/1232
fix_at: 22, 48, 57, 64, 72

Expectation, written first: the table's dtype is a choice of its configuration; the weights of a keyed jagged tensor
come from the collate function in torch's default, and an embedding bag wants both alike. Mend: cast the weights where
the collection looks them up (the pull request), or collate them in the table's dtype.
"""
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class BagConfig:
    name: str
    rows: int
    dim: int
    data_type: torch.dtype = torch.float16


@dataclass
class Jagged:
    values: torch.Tensor
    lengths: torch.Tensor
    weights: torch.Tensor

    def offsets(self):
        return torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)[:-1]])


@dataclass
class Batch:
    features: dict = field(default_factory=dict)
    labels: torch.Tensor = None


def collate(rows):
    batch = Batch(labels=torch.tensor([r["label"] for r in rows]))
    for key in ("user", "item"):
        pairs = [p for r in rows for p in r[key]]
        batch.features[key] = Jagged(
            torch.tensor([i for i, _ in pairs]),
            torch.tensor([len(r[key]) for r in rows]),
            torch.tensor([w for _, w in pairs]),  # BORN
        )
    return batch


class EmbeddingBagCollection(nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.tables = nn.ModuleDict(
            {c.name: nn.EmbeddingBag(c.rows, c.dim, mode="sum", dtype=c.data_type) for c in configs}
        )

    def forward(self, features):
        pooled = []
        for name, table in self.tables.items():
            jt = features[name]
            out = table(jt.values, jt.offsets(), per_sample_weights=jt.weights)  # BORN COLLIDES
            pooled.append(out.float())
        return torch.cat(pooled, dim=1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.ebc = EmbeddingBagCollection([BagConfig("user", 50, 8), BagConfig("item", 80, 8)])
        self.over = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, features):
        return self.over(self.ebc(features)).squeeze(1)


def clicks(n, gen):
    for _ in range(n):
        row = {"label": float(torch.rand((), generator=gen) > 0.5)}
        for key, rows in (("user", 50), ("item", 80)):
            count = int(torch.randint(1, 5, (), generator=gen))
            ids = torch.randint(0, rows, (count,), generator=gen).tolist()
            row[key] = [(i, 1.0 / (k + 1)) for k, i in enumerate(ids)]
        yield row


if __name__ == "__main__":
    torch.manual_seed(0)
    batch = collate(list(clicks(64, torch.Generator().manual_seed(3))))
    model = TwoTower()
    with torch.no_grad():
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch.features), batch.labels)
    print(f"loss {loss.item():.2f}")
