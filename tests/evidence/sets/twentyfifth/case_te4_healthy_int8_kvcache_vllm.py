"""
title: int8 cache of keys and values with calibrated scales
expect: clean
thread: https://github.com/vllm-project/vllm/pull/10354
measured: cosine 1.00 same token 1.00 cache bytes 32768
suspect: 29 negligible (rounded and clamped to -128..127 with float32 scales)

Expectation, written first: keys and values are divided by their calibrated scale, rounded, clamped and only then cast to
int8; nothing wraps, the step is 1/127 of the largest value. The attention output keeps a cosine of 1.00 and the
chosen tokens are the same.
"""
import torch


class LayerScales:
    def __init__(self):
        self.k_max, self.v_max = 0.0, 0.0

    def observe(self, k, v):
        self.k_max = max(self.k_max, k.abs().max().item())
        self.v_max = max(self.v_max, v.abs().max().item())

    def scales(self):
        return self.k_max / 127, self.v_max / 127


def quantize(x, scale):
    q = torch.round(x.float() / scale)
    return q.clamp(-128, 127).to(torch.int8)


def dequantize(q, scale):
    return q.float() * scale


class Int8KVCache:
    def __init__(self, scales):
        self.k_scale, self.v_scale = scales
        self.keys, self.values = [], []

    def append(self, k, v):
        self.keys.append(quantize(k, self.k_scale))
        self.values.append(quantize(v, self.v_scale))

    def fetch(self):
        return dequantize(torch.cat(self.keys), self.k_scale), dequantize(torch.cat(self.values), self.v_scale)


def attend(q, k, v):
    return (q @ k.T * q.shape[-1] ** -0.5).softmax(dim=-1) @ v


def calibrate(batches):
    layer = LayerScales()
    for k, v in batches:
        layer.observe(k, v)
    return layer.scales()


def main():
    generator = torch.Generator().manual_seed(10354)
    batches = [(torch.randn(32, 64, generator=generator), torch.randn(32, 64, generator=generator)) for _ in range(8)]
    cache = Int8KVCache(calibrate(batches))
    for k, v in batches:
        cache.append(k, v)
    q = torch.randn(16, 64, generator=generator)
    k_ref, v_ref = (torch.cat(t) for t in zip(*batches))
    out, ref = attend(q, *cache.fetch()), attend(q, k_ref, v_ref)
    cosine = torch.cosine_similarity(out, ref, dim=-1).min().item()
    head = torch.randn(64, 20, generator=generator)
    agree = ((out @ head).argmax(1) == (ref @ head).argmax(1)).float().mean().item()
    print(f"cosine {cosine:.2f} same token {agree:.2f} cache bytes {sum(t.numel() for t in cache.keys + cache.values)}")


main()
