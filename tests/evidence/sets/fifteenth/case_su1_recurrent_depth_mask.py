"""
title: a recurrent-depth language model hands the tokenizer's padding mask to attention as it came
expect: collision
thread: https://github.com/seal-rg/recurrent-pretraining/issues/23
fix_at: 27, 28, 41, 58, 67, 78

Expectation, written first: the tokenizer pads with ones and zeros as int64; the model only reshapes the mask and
the attention takes a boolean or a floating point mask.
"""
import torch
import torch.nn.functional as F
from torch import nn


class CharTokenizer:
    def __init__(self, alphabet="abcdefghijklmnopqrstuvwxyz ?.", pad_id=0):
        self.ids = {c: i + 1 for i, c in enumerate(alphabet)}
        self.pad_id = pad_id

    def __len__(self):
        return len(self.ids) + 1

    def __call__(self, texts, padding="longest"):
        rows = [[self.ids[c] for c in t.lower()] for t in texts]
        longest = max(map(len, rows)) if padding == "longest" else padding
        ids = [[self.pad_id] * (longest - len(r)) + r for r in rows]
        mask = [[0] * (longest - len(r)) + [1] * len(r) for r in rows]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}  # BORN


class SandwichBlock(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(4))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def attend(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # COLLIDES
        return self.proj(y.transpose(1, 2).flatten(2))

    def forward(self, x, mask):
        x = self.norms[1](x + self.attend(self.norms[0](x), mask))
        return self.norms[3](x + self.mlp(self.norms[2](x)))


class RavenModel(nn.Module):
    def __init__(self, vocab, width=32, steps=4):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.prelude, self.core, self.coda = (SandwichBlock(width) for _ in range(3))
        self.adapter, self.head, self.steps = nn.Linear(2 * width, width), nn.Linear(width, vocab), steps

    def compile_mask(self, attention_mask):
        batch, length = attention_mask.shape
        return attention_mask[:, None, None, :].expand(batch, 1, length, length)  # BORN

    def iterate(self, embedded, mask):
        state = torch.zeros_like(embedded)
        for _ in range(self.steps):
            state = self.core(self.adapter(torch.cat([state, embedded], -1)), mask)
        return state

    def forward(self, input_ids, attention_mask=None):
        mask = None if attention_mask is None else self.compile_mask(attention_mask)
        x = self.prelude(self.wte(input_ids), mask)
        return self.head(self.coda(self.iterate(x, mask), mask))


if __name__ == "__main__":
    torch.manual_seed(1)
    tokenizer = CharTokenizer()
    model = RavenModel(len(tokenizer)).eval()
    queries = ["what is the capital of france?", "who wrote it?", "how many."]
    with torch.no_grad():
        logits = model(**tokenizer(queries))
    print(logits[:, -1].argmax(-1).tolist())
