"""
title: activations are coded as int8 without a limit, the largest becomes the smallest; the scales, powers of two, may be half
expect: silent:overflow|wraparound|integer-overflow|downcast
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(916)


class Codec:
    def encode(self, x):
        scale = 2.0 ** (x.abs().amax(-1, keepdim=True).log2().ceil() - 7)
        scale = scale.half().float()
        code = (x / scale).round()
        code = code.to(torch.int8)  # BORN
        return code, scale

    def decode(self, code, scale):
        return code.float() * scale


class Net(nn.Module):
    """Saturated features: the largest is one."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(6, 24), nn.Linear(24, 3)

    def features(self, x):
        return torch.clamp(3 * self.inner(x), -1, 1)


def batch(count):
    x = torch.randn(count, 6)
    return x, (x[:, 0] > 0.4).long() + (x[:, 1] > 0).long()


net, codec = Net(), Codec()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(120):
    x, y = batch(128)
    loss = F.cross_entropy(net.out(net.features(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
x, y = batch(1000)
with torch.no_grad():
    f = net.features(x)
    right = [(net.out(g).argmax(-1) == y).float().mean().item() for g in (f, codec.decode(*codec.encode(f)))]
print("accuracy", round(right[0], 3), "from codes", round(right[1], 3))
