"""
title: two 4-bit codes are packed into an int8, the shift that unpacks the upper one brings its sign along
expect: silent:overflow|wraparound|integer-overflow|downcast
fix_at: 30

After https://github.com/pytorch/FBGEMM/pull/5705, https://github.com/ROCm/hip-ep/pull/178 and https://github.com/onnxruntime/onnxruntime-qnn/pull/728.
Right: the packed bytes are unsigned.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(705)


def encode(weight, group=16):
    """Unsigned codes of 4 bits with a scale and a least value per group."""
    grouped = weight.detach().view(weight.shape[0], -1, group)
    low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    scale = (high - low) / 15
    code = ((grouped - low) / scale).round().clamp(0, 15)
    return code.view_as(weight).int(), scale, low


def pack(code):
    return (code[:, 0::2] | (code[:, 1::2] << 4)).to(torch.int8)  # BORN


def unpack(packed):
    pair = torch.stack([packed & 15, packed >> 4], dim=-1)
    return pair.flatten(1)


class Linear4(nn.Module):
    def __init__(self, linear):
        super().__init__()
        code, scale, low = encode(linear.weight)
        self.register_buffer("packed", pack(code))
        self.register_buffer("scale", scale)
        self.register_buffer("low", low)
        self.bias = linear.bias

    def forward(self, x):
        code = unpack(self.packed).view(self.scale.shape[0], -1, 16)
        weight = (code * self.scale + self.low).flatten(1)
        return F.linear(x, weight, self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 4)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def batch(count):
    x = torch.randn(count, 16)
    return x, (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(150):
    x, y = batch(128)
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
small = nn.Sequential(Linear4(net.first), nn.ReLU(), Linear4(net.second))
x, y = batch(1000)
with torch.no_grad():
    right = [(f(x).argmax(-1) == y).float().mean().item() for f in (net, small)]
print("accuracy", round(right[0], 3), "in 4 bits", round(right[1], 3))
