"""
title: paged attention reads a float16 cache for bfloat16 queries: Expected query, key, and value to have the same dtype
expect: collision
thread: https://github.com/nod-ai/amd-shark-ai/pull/2202

Expectation, written first: the activations are bfloat16, the config asks for a float16 page table. The decode step reads
keys and values from the pages and calls attention without a cast, and scaled_dot_product_attention refuses the mix.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class LlamaModelConfig:
    head_count: int = 2
    head_dim: int = 8
    block_count: int = 2
    block_seq_stride: int = 4
    activation_dtype: torch.dtype = torch.bfloat16
    kv_cache_dtype: torch.dtype = torch.float16  # BORN


class PagedKVCache:
    def __init__(self, config, page_count=8):
        self.config = config
        shape = (page_count, config.block_count, 2, config.block_seq_stride, config.head_count, config.head_dim)
        self.pages = torch.zeros(shape, dtype=config.kv_cache_dtype)  # BORN

    def write(self, state, block, start, page_ids):
        stride = self.config.block_seq_stride
        for partition, values in enumerate(state):
            for offset in range(values.shape[1]):
                page, slot = divmod(start + offset, stride)
                self.pages[page_ids[page], block, partition, slot] = values[0, offset].to(self.pages.dtype)

    def read(self, block, page_ids, length):
        gathered = self.pages[page_ids, block].transpose(0, 1).flatten(1, 2)
        return gathered[0, :length][None], gathered[1, :length][None]


class PagedLlamaAttentionBlock(nn.Module):
    def __init__(self, block_index, config):
        super().__init__()
        self.block_index, self.config = block_index, config
        dim = config.head_count * config.head_dim
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False, dtype=config.activation_dtype)
        self.attn_output = nn.Linear(dim, dim, bias=False, dtype=config.activation_dtype)

    def forward(self, h, cache, start, page_ids):
        bs, length, dim = h.shape
        heads = (bs, length, self.config.head_count, self.config.head_dim)
        xq, xk, xv = (t.view(heads) for t in self.attn_qkv(h).chunk(3, dim=-1))
        cache.write([xk, xv], self.block_index, start, page_ids)
        xk, xv = cache.read(self.block_index, page_ids, start + length)  # BORN
        q, k, v = (t.transpose(1, 2) for t in (xq, xk, xv))
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)  # BORN COLLIDES
        return h + self.attn_output(attn.transpose(1, 2).reshape(bs, length, dim))


def main():
    torch.manual_seed(0)
    config = LlamaModelConfig()
    cache = PagedKVCache(config)
    blocks = [PagedLlamaAttentionBlock(i, config) for i in range(config.block_count)]
    page_ids = torch.tensor([3, 1, 6])
    tokens = torch.randn(1, 5, config.head_count * config.head_dim).to(config.activation_dtype)
    start = 0
    with torch.no_grad():
        for step in range(4):
            h = tokens
            for block in blocks:
                h = block(h, cache, start, page_ids)
            start += tokens.shape[1]
            tokens = h[:, -1:]
            print(f"step {step} length {start} norm {h[:, -1].float().norm().item():.3f}")


if __name__ == "__main__":
    main()
