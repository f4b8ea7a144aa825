"""
title: Ad-ranking tower with a half-precision embedding table and float sample weights
expect: collision
thread: https://github.com/meta-pytorch/torchrec/pull/1758
culprit: table.weight

Expectation, written first.  To halve the memory of the embedding table the
author makes it float16.  The per-sample weights (TF-IDF of the tags) are
float32, and nn.EmbeddingBag demands the table and the weights in one dtype.
BORN is the line that makes the table half; leaving it float32, or casting the
weights at the call, mends it.
"""
import torch
from torch import nn

torch.manual_seed(0)


class TaggedAds(torch.utils.data.Dataset):
    def __init__(self, n=256, vocabulary=500):
        g = torch.Generator().manual_seed(5)
        self.tags = [torch.randint(0, vocabulary, (int(torch.randint(1, 7, (), generator=g)),), generator=g)
                     for _ in range(n)]
        document_frequency = torch.bincount(torch.cat(self.tags), minlength=vocabulary).clamp(min=1)
        self.idf = torch.log(n / document_frequency)
        self.clicked = torch.rand(n, generator=g) < 0.3

    def __len__(self):
        return len(self.tags)

    def __getitem__(self, i):
        return self.tags[i], self.idf[self.tags[i]], float(self.clicked[i])


def collate(items):
    lengths = torch.tensor([len(t) for t, _, _ in items])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    return (torch.cat([t for t, _, _ in items]), offsets, torch.cat([w for _, w, _ in items]),
            torch.tensor([c for _, _, c in items]))


class AdTower(nn.Module):
    def __init__(self, vocabulary=500, dim=16):
        super().__init__()
        self.table = nn.EmbeddingBag(vocabulary, dim, mode="sum").half()  # BORN
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, tags, offsets, weights):
        pooled = self.table(tags, offsets, per_sample_weights=weights)  # COLLIDES
        return self.mlp(pooled.float()).squeeze(-1)


def main():
    model = AdTower()
    opt = torch.optim.SGD(model.mlp.parameters(), lr=0.05)
    for tags, offsets, weights, clicked in torch.utils.data.DataLoader(TaggedAds(), batch_size=32, collate_fn=collate):
        loss = nn.functional.binary_cross_entropy_with_logits(model(tags, offsets, weights), clicked)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"last log loss = {loss.item():.4f}")


if __name__ == "__main__":
    main()
