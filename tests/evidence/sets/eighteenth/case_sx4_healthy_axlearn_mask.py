"""
title: attention mask built from token indices in int32 instead of int64
expect: clean
thread: https://github.com/apple/axlearn/pull/775
measured: allowed pairs 46662, active blocks 0.328, rows that see token 0: 101
suspect: line 31 harmless (indices up to the sequence length)

Expectation, written first: the sliding-window mask compares positions held in int32; they and their differences are below
a few thousand, so nothing can wrap. The mask and the attention output are those of int64.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

NEG_INF = -1e15


def causal_mask(query_position, key_position):
    return query_position >= key_position


def sliding_window_causal_mask(window):
    def fn(query_position, key_position):
        return causal_mask(query_position, key_position) & (query_position - key_position <= window)
    return fn


class MaskFnAttentionBias:
    def __init__(self, mask, seq_len):
        self.mask = mask
        self.positions = torch.arange(seq_len, dtype=torch.int32)

    def bool_value(self):
        return self.mask(self.positions[:, None], self.positions[None, :])

    def value(self):
        return torch.where(self.bool_value(), 0.0, NEG_INF)

    def block_sparsity(self, block=64):
        mask = self.bool_value()
        blocks = mask.unfold(0, block, block).unfold(1, block, block)
        return blocks.flatten(2).any(-1).float().mean().item()


class Attention(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, bias):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.t() / q.shape[-1] ** 0.5 + bias
        return self.out(F.softmax(scores, dim=-1) @ v)


def main():
    torch.manual_seed(0)
    seq_len, window = 512, 100
    bias = MaskFnAttentionBias(sliding_window_causal_mask(window), seq_len)
    layer = Attention()
    x = torch.randn(seq_len, 16)
    with torch.no_grad():
        out = layer(x, bias.value())
        changed = x.clone()
        changed[0] += 10.0
        moved = (layer(changed, bias.value()) - out).abs().amax(dim=1) > 1e-6
    print(f"allowed pairs {int(bias.bool_value().sum())}, active blocks {bias.block_sparsity():.3f}, rows that see token 0: {int(moved.sum())}")


main()
