"""
title: The attention mask is filled with the lowest bfloat16 number
expect: clean
thread: https://github.com/espnet/espnet/pull/4584
measured: leak 0.0 nan False rms ['1.0', '1.0', '1.0'] / rows sum ['1.00', '1.00', '1.00']
suspect: 41 right (finite in bfloat16, softmax gives exactly 0 there)

Expectation, written first: finfo(scores.dtype).min is finite in bfloat16, it is filled in (not added), softmax subtracts the
maximum and the masked weights are exactly 0; a second masked_fill covers rows without any key. The output has the
accuracy of bfloat16, which the printed digits allow for.
"""
import math

import torch
import torch.nn as nn


def make_pad_mask(lengths):
    return torch.arange(max(lengths))[None] >= torch.tensor(lengths)[:, None]


class MultiHeadedAttention(nn.Module):
    def __init__(self, n_head, n_feat):
        super().__init__()
        self.d_k, self.h = n_feat // n_head, n_head
        self.linear_q = nn.Linear(n_feat, n_feat)
        self.linear_k = nn.Linear(n_feat, n_feat)
        self.linear_v = nn.Linear(n_feat, n_feat)
        self.linear_out = nn.Linear(n_feat, n_feat)
        self.attn = None

    def forward_qkv(self, x):
        n = x.size(0)
        return [lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
                for lin in (self.linear_q, self.linear_k, self.linear_v)]

    def forward_attention(self, value, scores, mask):
        n = value.size(0)
        mask = mask.unsqueeze(1)
        min_value = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(mask, min_value)
        self.attn = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)
        x = torch.matmul(self.attn, value)
        return self.linear_out(x.transpose(1, 2).reshape(n, -1, self.h * self.d_k))

    def forward(self, x, mask):
        q, k, v = self.forward_qkv(x)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        return self.forward_attention(v, scores, mask)


class EncoderLayer(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.self_attn = MultiHeadedAttention(heads, size)
        self.feed_forward = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))

    def forward(self, x, mask):
        x = x + self.self_attn(self.norm1(x), mask)
        return x + self.feed_forward(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, idim, size=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Linear(idim, size)
        self.encoders = nn.ModuleList(EncoderLayer(size, heads) for _ in range(layers))
        self.after_norm = nn.LayerNorm(size)

    def forward(self, xs, ilens):
        pad = make_pad_mask(ilens)
        mask = pad[:, None, :] | pad[:, :, None]
        x = self.embed(xs)
        for layer in self.encoders:
            x = layer(x, mask)
        return self.after_norm(x), pad


@torch.no_grad()
def main():
    torch.manual_seed(4584)
    encoder = Encoder(20).to(torch.bfloat16).eval()
    ilens = [30, 17, 9]
    xs = torch.randn(3, 30, 20).masked_fill(make_pad_mask(ilens)[:, :, None], 0.0).to(torch.bfloat16)
    hs, pad = encoder(xs, ilens)
    attn = encoder.encoders[0].self_attn.attn
    leak = attn.masked_fill(~(pad[:, None, None, :]), 0).abs().max().item()
    pooled = [hs[b, :n].float().square().mean().sqrt().item() for b, n in enumerate(ilens)]
    print("leak", leak, "nan", torch.isnan(hs).any().item(), "rms", [f"{p:.1f}" for p in pooled])
    print("rows sum", [f"{attn[b, :, :n].float().sum(-1).mean().item():.2f}" for b, n in enumerate(ilens)])


if __name__ == "__main__":
    main()
