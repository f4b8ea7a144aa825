"""
title: rotary table casts its inverse frequencies to the activation dtype first
expect: silent:precision-loss|downcast
thread: https://github.com/Modalities/modalities/pull/462
measured: match of a key with its own position: 0.543 of 1
widened: match of a key with its own position: 1.000 of 1

Expectation, written first: the phase is position times a bf16 frequency, so at
position 30000 it is off by many radians; a key does not match its own position any
more. Frequencies kept in float32 restore it although the table is bf16 in the end.
"""
import torch


class RotaryTransform:
    def __init__(self, head_dim, base=10000.0):
        self.inv_freq = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
        self._cached = 0

    def _update_tables(self, x):
        if self._cached >= x.shape[-2]:
            return
        self._cached = x.shape[-2]
        t = torch.arange(self._cached, dtype=torch.float32)
        inv_freq = self.inv_freq.to(x.dtype)  # BORN
        freqs = torch.outer(t, inv_freq.float())
        emb = torch.cat((freqs, freqs), dim=-1)
        self.cos, self.sin = emb.cos().to(x.dtype), emb.sin().to(x.dtype)

    @staticmethod
    def rotate_half(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)

    def __call__(self, x):
        self._update_tables(x)
        n = x.shape[-2]
        return x * self.cos[:n] + self.rotate_half(x) * self.sin[:n]


def reference_rotation(vec, pos, head_dim, base=10000.0):
    inv = 1.0 / base ** (torch.arange(0, head_dim, 2).double() / head_dim)
    ang = torch.cat([pos * inv, pos * inv])
    return vec * ang.cos() + RotaryTransform.rotate_half(vec) * ang.sin()


def main(seq=32768, head_dim=64):
    torch.manual_seed(0)
    base = torch.randn(head_dim, dtype=torch.float64)
    keys = base.repeat(seq, 1).to(torch.bfloat16)
    rotated = RotaryTransform(head_dim)(keys).double()
    strength, probe = 0.0, range(16384, 32768, 512)
    for pos in probe:
        query = reference_rotation(base, pos, head_dim)
        strength += (rotated[pos] @ query / (base @ base)).item()
    print(f"match of a key with its own position: {strength / len(probe):.3f} of 1")


main()
