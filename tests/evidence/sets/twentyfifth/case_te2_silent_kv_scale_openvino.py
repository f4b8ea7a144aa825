"""
title: long contexts lose a key channel that is constant
expect: silent:overflow
thread: https://github.com/openvinotoolkit/openvino/pull/37095
measured: context 256: NaN share 0.00 error 0.00 / context 1024: NaN share 1.00 error 1.00
widened: context 256: NaN share 0.00 error 0.00 / context 1024: NaN share 0.00 error 0.00; innocent: context 256: NaN share 0.00 error 0.00 / context 1024: NaN share 1.00 error 1.00
suspect: 60 exact (block numbers below 64)

Expectation, written first: the by-channel scale is 255/range, a constant channel falls back to range 0.001; 255000 does
not fit into half and becomes infinite, inf/inf is NaN on reading and the attention over such blocks is NaN. Remedy: keep
the scale in float32 (or a larger fallback). The block table in int16 is exact.
"""
import torch


class CacheConfig:
    block_size = 16
    min_range = 0.001
    scale_dtype = torch.float16  # BORN


class PagedKeyCache:
    def __init__(self, cfg):
        self.cfg = cfg
        self.blocks, self.params = [], []

    def write(self, keys):
        lo = keys.amin(dim=0)
        span = (keys.amax(dim=0) - lo).clamp(min=self.cfg.min_range)
        scale = (255.0 / span).to(self.cfg.scale_dtype)  # BORN
        zero_point = -lo * scale.float()
        q = torch.round(keys * scale.float() + zero_point)  # BORN
        self.blocks.append(q.nan_to_num(0).clamp(0, 255).to(torch.uint8))
        self.params.append((scale, zero_point))

    def read(self, block_table):
        out = []
        for b in block_table.tolist():
            scale, zero_point = self.params[b]
            out.append((self.blocks[b].float() - zero_point) / scale.float())
        return torch.cat(out)


def attention(query, keys, values):
    probs = (query @ keys.T / query.shape[-1] ** 0.5).softmax(dim=-1)
    return probs @ values


def main():
    torch.manual_seed(37095)
    cfg = CacheConfig()
    cache = PagedKeyCache(cfg)
    keys = torch.randn(64 * cfg.block_size, 32)
    keys[512:, 5] = 1.5
    values = torch.randn(len(keys), 32)
    for i in range(0, len(keys), cfg.block_size):
        cache.write(keys[i:i + cfg.block_size])  # BORN
    query = torch.randn(8, 32)
    for n_blocks in (16, 64):
        table = torch.arange(n_blocks).to(torch.int16)
        n = n_blocks * cfg.block_size
        out = attention(query, cache.read(table), values[:n])
        ref = attention(query, keys[:n], values[:n])
        bad = torch.isnan(out).float().mean().item()
        print(f"context {n}: NaN share {bad:.2f} error {(out - ref).abs().nan_to_num(1.0).max():.2f}")


main()
