"""
title: Half-precision attention with finfo.min, -inf and -100 everywhere
expect: clean
thread: https://github.com/CHARM-Tx/linear_mem_attention_pytorch/pull/2

Expectation, written first.  Nothing is wrong.  The causal mask is -inf, the
padding mask is the most negative half; their sum is -inf, never nan, because
every query sees at least itself or the first token.  Padded labels are -100
and are ignored; the loss is taken in float32.  Infinities that end in a
softmax are the purpose of a mask.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def causal_mask(n, dtype):
    return torch.full((n, n), float("-inf"), dtype=dtype).triu(1)


def padding_mask(keep, dtype):
    return torch.where(keep, 0.0, torch.finfo(dtype).min).to(dtype)[:, None, None, :]


class Attention(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + bias
        weights = scores.float().softmax(-1).to(x.dtype)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d))


class TinyLM(nn.Module):
    def __init__(self, vocab=40, dim=32):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, dim), nn.LayerNorm(dim)
        self.attention, self.head = Attention(dim), nn.Linear(dim, vocab)

    def forward(self, ids, keep):
        x = self.embed(ids)
        bias = causal_mask(ids.size(1), x.dtype) + padding_mask(keep, x.dtype)
        return self.head(x + self.attention(self.norm(x), bias))


def collate(lengths=(12, 7, 9, 3), vocab=40):
    longest = max(lengths)
    ids = torch.zeros(len(lengths), longest, dtype=torch.long)
    keep = torch.zeros(len(lengths), longest, dtype=torch.bool)
    for i, n in enumerate(lengths):
        ids[i, :n] = torch.randint(1, vocab, (n,))
        keep[i, :n] = True
    labels = ids.roll(-1, 1)
    labels[~keep.roll(-1, 1)] = -100
    labels[:, -1] = -100
    return ids, keep, labels


@torch.no_grad()
def main():
    model = TinyLM().half().eval()
    ids, keep, labels = collate()
    logits = model(ids, keep)
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100)
    assert torch.isfinite(logits[keep]).all()
    print(f"loss {loss.item():.4f} over {(labels != -100).sum().item()} tokens, nan logits {logits.isnan().sum().item()}")


if __name__ == "__main__":
    main()
