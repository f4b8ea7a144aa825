"""
title: the averaged copy of a fine-tuned network takes the weight dtype of the run
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415
measured: validation loss: live 0.0000, averaged 0.0223
widened: validation loss: live 0.0000, averaged 0.0044

Expectation, written first: one thousandth of the distance to the live weights is less than half a step of float16
for most weights, so the shadow stays near its start. The pixels are also kept in float16, but they are multiples
of 1/256 and lose nothing.
"""
import copy

import torch
from torch import nn


class EMA:
    def __init__(self, net, decay, weight_dtype):
        self.decay = decay
        self.shadow = copy.deepcopy(net).requires_grad_(False).to(weight_dtype)  # BORN

    @torch.no_grad()
    def update(self, net):
        for s, p in zip(self.shadow.parameters(), net.parameters()):
            s.sub_((1 - self.decay) * (s - p.to(s.dtype)))

    def averaged(self, like):
        out = copy.deepcopy(like)
        out.load_state_dict({k: v.float() for k, v in self.shadow.state_dict().items()})
        return out


class Patches:
    """sixteen by four patches of an eight bit picture"""

    def __init__(self, n, gen):
        self.pixels = (torch.randint(0, 256, (n, 64), generator=gen) / 256).half()
        self.style = torch.randn(64, 12, generator=gen) / 8

    def batch(self, size, gen):
        x = self.pixels[torch.randint(0, len(self.pixels), (size,), generator=gen)].float() - 0.5
        return x, x @ self.style


def main():
    gen = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    data = Patches(2048, gen)
    net = nn.Sequential(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 12))
    ema = EMA(net, decay=0.999, weight_dtype=torch.float16)  # BORN
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    for _ in range(2000):
        x, y = data.batch(64, gen)
        loss = (net(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(net)
    x, y = data.batch(1024, gen)
    with torch.no_grad():
        live = (net(x) - y).square().mean()
        mean = (ema.averaged(net)(x) - y).square().mean()
    print(f"validation loss: live {live:.4f}, averaged {mean:.4f}")


main()
