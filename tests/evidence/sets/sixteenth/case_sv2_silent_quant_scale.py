"""
title: the scales of a weight quantiser are kept in the float16 of the export
expect: silent:underflow|downcast|precision-loss
thread: https://github.com/PaddlePaddle/Paddle/pull/43088
measured: accuracy after quantisation 55%
widened: accuracy after quantisation 98%

Expectation, written first: the first layer takes differences in pascal and its weights are near a millionth; a hundred
and twenty-seventh of that is below the smallest float16 and the scale is zero. The codes are int8 on purpose and the
biases float16, which the score does not feel.
"""
import torch
from torch import nn


class QuantLinear(nn.Module):
    def __init__(self, linear, group=16):
        super().__init__()
        w = linear.weight.detach().unflatten(1, (-1, group))
        scale = (w.abs().amax(-1, keepdim=True) / 127).to(torch.float16)  # BORN
        codes = w / scale.float().clamp(min=1e-20)
        self.register_buffer("scale", scale)
        self.register_buffer("codes", codes.round().clamp(-127, 127).to(torch.int8))
        self.register_buffer("bias", linear.bias.detach().half())

    def forward(self, x):
        w = (self.codes.float() * self.scale.float()).flatten(1)
        return nn.functional.linear(x, w, self.bias.float())


class Weather:
    """rain or not, from how far the pressures of 32 stations are off their mean, in pascal"""

    def __init__(self):
        self.axis = torch.randn(32) / 32**0.5

    def draw(self, n):
        deviation = 900 * torch.randn(n, 32)
        return deviation, ((deviation @ self.axis).abs() > 600).long()


def train(data, steps=400):
    net = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 2))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(steps):
        x, y = data.draw(256)
        loss = nn.functional.cross_entropy(net(x / 900), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():  # the unit of the input goes into the first layer
        net[0].weight /= 900
    return net


def main():
    torch.manual_seed(19)
    data = Weather()
    net = train(data)
    gain = 0.002  # of the fixed point input of the device
    scaled = nn.Sequential(net[0], nn.GELU(), net[2])
    with torch.no_grad():
        scaled[0].weight *= gain
        scaled[0].bias *= gain
    quant = QuantLinear(scaled[0])
    x, y = data.draw(4000)
    with torch.no_grad():
        hidden = nn.functional.gelu(quant(x) / gain)
        right = (scaled[2](hidden).argmax(-1) == y).float().mean()
    print(f"accuracy after quantisation {100 * right:.0f}%")


main()
