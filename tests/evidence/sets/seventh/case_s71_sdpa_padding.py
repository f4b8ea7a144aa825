"""
title: A depth-recurrent language model hands the tokenizer's integer padding mask to SDPA
expect: collision
thread: https://github.com/seal-rg/recurrent-pretraining/issues/23

Expectation, written first.  The collator makes the padding mask as 0/1 int64,
as tokenizers do.  The block broadcasts it over heads and queries and gives it
to scaled_dot_product_attention, which wants a bool mask or an additive float
one.  BORN is the line of the collator that creates the mask with dtype long;
a bool mask there (or a .bool() at the call) mends it.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class ToyTokenizer:
    def __init__(self, vocabulary="abcdefghijklmnopqrstuvwxyz "):
        self.index = {c: i + 2 for i, c in enumerate(vocabulary)}

    def __call__(self, texts):
        rows = [[1] + [self.index[c] for c in t] for t in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
        keep = torch.zeros(len(rows), longest, dtype=torch.long)  # BORN
        for i, r in enumerate(rows):
            keep[i, :len(r)] = 1
        return {"input_ids": ids, "attention_mask": keep}


class RecurrentBlock(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # COLLIDES
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.n2(x))


class RecurrentLM(nn.Module):
    def __init__(self, vocab=32, dim=32, depth=4):
        super().__init__()
        self.embed, self.block, self.depth = nn.Embedding(vocab, dim), RecurrentBlock(dim), depth
        self.head = nn.Linear(dim, vocab)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[:, None, None, :].expand(-1, 1, input_ids.size(1), -1)
        x = self.embed(input_ids)
        for _ in range(self.depth):
            x = self.block(x, mask)
        return self.head(x)


if __name__ == "__main__":
    batch = ToyTokenizer()(["the cat", "a longer sentence", "hi"])
    model = RecurrentLM()
    with torch.no_grad():
        logits = model(**batch)
    print("logits", tuple(logits.shape), round(logits.abs().mean().item(), 4))
