"""
title: adapter exported in fp16 and re-attached with assign=True to a float32 model
expect: collision
thread: https://github.com/oobabooga/textgen/issues/2980
fix_at: 50

Expectation, written first: the exporter halves the adapter tensors, load_state_dict
with assign=True puts those half tensors in place of the float32 parameters, and the
down projection then refuses the float32 activations. The export's cast is the birth,
the assigning load is the other defensible one.
"""
import io

import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * self.scale  # COLLIDES


def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    net[0] = LoRALinear(net[0])
    net[2] = LoRALinear(net[2])
    return net


def adapter_state(net):
    return {k: v for k, v in net.state_dict().items() if ".down." in k or ".up." in k}


def export_adapter(net, buf):
    small = {k: v.to(torch.float16) for k, v in adapter_state(net).items()}  # BORN
    torch.save(small, buf)
    buf.seek(0)


def attach_adapter(net, buf):
    weights = torch.load(buf, weights_only=True)
    missing = net.load_state_dict(weights, strict=False, assign=True)  # BORN
    return len(missing.unexpected_keys)


def fit(net, steps=5):
    opt = torch.optim.Adam([p for n, p in net.named_parameters() if "base" not in n], lr=1e-2)
    for _ in range(steps):
        x = torch.randn(8, 16)
        loss = (net(x) - x[:, :4].sign()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


if __name__ == "__main__":
    net = build()
    print("trained", round(fit(net), 4))
    buf = io.BytesIO()
    export_adapter(net, buf)
    fresh = build()
    attach_adapter(fresh, buf)
    print("resumed", round(fit(fresh), 4))
