"""
title: the collator's 0/1 padding mask is an integer tensor and goes to scaled_dot_product_attention as it is
expect: collision

After seal-rg/recurrent-pretraining#23 ("got attn_mask.dtype: long"): tokenizers hand the mask out as int64, torch wants bool,
float or the query's dtype. Right: make the mask boolean where it is built (or where it is used).
"""
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.manual_seed(2)
PAD = 0


def collate(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in rows])
    keep = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows])  # BORN
    return ids, keep, torch.tensor([label for _, label in rows])


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, keep):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])  # COLLIDES
        return x + self.proj(y.transpose(1, 2).reshape(b, t, d))


class Classifier(nn.Module):
    def __init__(self, vocab=40, dim=32, heads=4, depth=2, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids, keep):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, keep)
        pooled = (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
        return self.head(pooled)


def corpus(rows=16):
    generator = torch.Generator().manual_seed(0)
    for _ in range(rows):
        length = int(torch.randint(3, 10, (), generator=generator))
        ids = torch.randint(1, 40, (length,), generator=generator).tolist()
        yield ids, ids[0] % 3


loader = DataLoader(list(corpus()), batch_size=4, collate_fn=collate)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(2):
    for ids, keep, labels in loader:
        loss = F.cross_entropy(model(ids, keep), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, round(loss.item(), 3))
