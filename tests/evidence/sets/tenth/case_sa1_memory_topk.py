"""
title: the top-k affinities of a video memory are normalised in float32 and scattered back into a bfloat16 map
expect: collision
thread: https://github.com/hkchengrex/MiVOS/issues/19

Expectation, written first: keys and queries are bfloat16, so is their affinity; the softmax
of the kept entries is asked for in float32, and scatter_ wants one dtype.
"""
import torch
from torch import nn


class KeyEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, 3, stride=2, padding=1)

    def forward(self, frame):
        return self.conv(frame).flatten(2)


class MemoryReader:
    def __init__(self, top_k=8):
        self.top_k = top_k

    def affinity(self, mk, qk):
        sim = 2 * mk.transpose(1, 2) @ qk - mk.pow(2).sum(1)[:, :, None]
        return self.keep_top(sim / mk.shape[1] ** 0.5)

    def keep_top(self, sim):
        values, indices = sim.topk(self.top_k, dim=1)
        weights = values.softmax(dim=1, dtype=torch.float32)  # BORN
        return torch.zeros_like(sim).scatter_(1, indices, weights)  # COLLIDES

    def read(self, mk, mv, qk):
        return mv @ self.affinity(mk, qk)


@torch.no_grad()
def propagate(frames, first_mask, dtype):
    torch.manual_seed(0)
    encoder = KeyEncoder().to(dtype)
    reader = MemoryReader()
    mask = nn.functional.avg_pool2d(first_mask, 2).flatten(2).to(dtype)
    mk, mv = encoder(frames[:1].to(dtype)), mask
    for t in range(1, len(frames)):
        qk = encoder(frames[t:t + 1].to(dtype))
        mask = reader.read(mk, mv, qk)
        mk, mv = torch.cat([mk, qk], 2), torch.cat([mv, mask], 2)
    return mask.float().mean().item()


gen = torch.Generator().manual_seed(1)
clip = torch.rand(4, 3, 16, 16, generator=gen)
seed_mask = torch.zeros(1, 1, 16, 16)
seed_mask[..., 4:12, 4:12] = 1
print("covered", propagate(clip, seed_mask, torch.bfloat16))
