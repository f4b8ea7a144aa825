"""
title: the smallest float16 is used as a mask and left padded prompts give NaN
expect: silent:overflow
thread: https://github.com/huggingface/transformers/pull/17306
measured: loss of the prompts 4.69, nan, 4.83, nan
widened: loss of the prompts 4.69, 4.73, 4.83, 4.53

Expectation, written first: the mask of -65504 plus a score below -16 is minus infinity in float16; a padding row, all of
whose keys are masked, has nothing left for its softmax, and the next layer spreads its NaN to every token. The
innocent suspect is the embedding table in float16, which is widened at its look-up.
"""
import torch
import torch.nn.functional as F
from torch import nn


def build_mask(attention_mask, dtype):
    n = attention_mask.shape[1]
    visible = torch.ones(n, n).tril().bool() & attention_mask[:, None, :].bool()
    mask = torch.zeros(visible.shape, dtype=dtype)  # BORN
    return mask.masked_fill(~visible, torch.finfo(mask.dtype).min)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        with torch.no_grad():  # trained models have such key offsets
            self.k.bias.fill_(1.6)
            self.q.bias.fill_(-3.2)

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5
        scores = scores.to(mask.dtype) + mask  # BORN
        return self.out(scores.float().softmax(-1) @ self.v(x))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.norm = Attention(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        x = x + self.attention(self.norm(x), mask)
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, vocab=100, width=48, depth=2, mask_dtype=torch.float16):  # BORN
        super().__init__()
        self.register_buffer("table", torch.randn(vocab, width).half())
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab)
        self.mask_dtype = mask_dtype

    def forward(self, ids, attention_mask):
        x = self.table[ids].float()
        mask = build_mask(attention_mask, self.mask_dtype)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def collate(prompts, length):
    ids = torch.stack([F.pad(p, (length - len(p), 0)) for p in prompts])
    mask = torch.stack([F.pad(torch.ones(len(p), dtype=torch.long), (length - len(p), 0)) for p in prompts])
    return ids, mask


@torch.no_grad()
def main():
    torch.manual_seed(34)
    model = Decoder()
    prompts = [torch.randint(1, 100, (n,)) for n in (24, 17, 24, 9)]
    ids, mask = collate(prompts, 24)
    logits = model(ids, mask)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(4, -1)
    per_prompt = (loss * mask[:, :-1]).sum(1) / mask[:, :-1].sum(1)
    print("loss of the prompts " + ", ".join(f"{v:.2f}" for v in per_prompt.tolist()))


main()
