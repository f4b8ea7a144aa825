"""
title: eight-bit weights with one scale per channel
expect: silent:underflow|downcast
thread: https://github.com/apple/coremltools/pull/2851
measured: worst channel error 1.000, channels lost 7
widened: worst channel error 0.005, channels lost 0

Expectation, written first: channels with tiny weights have a scale of about 1e-8,
which is zero in float16, so the whole channel comes back as zero. BORN is the cast of the
scales; float32 restores the channel. The eight-bit codes look coarse but are what is wanted.
"""
import torch
from torch import nn


class QuantisedLinear(nn.Module):
    def __init__(self, layer):
        super().__init__()
        weight = layer.weight.detach()
        span = weight.abs().amax(dim=1, keepdim=True)
        scale = (span / 127).to(torch.float16)  # BORN
        codes = torch.where(scale > 0, weight / scale, torch.zeros_like(weight))
        self.register_buffer("codes", codes.round().clamp(-127, 127).to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        return x @ (self.codes.float() * self.scale.float()).t()


class ScaledHead(nn.Module):
    """Rows of very different size, evened out by a norm that follows."""

    def __init__(self, width=32, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.proj = nn.Linear(width, width, bias=False)
        sizes = torch.logspace(0, -6, width)
        with torch.no_grad():
            self.proj.weight.mul_(sizes[:, None])
        self.register_buffer("sizes", sizes)

    def forward(self, x):
        return self.proj(x) / self.sizes


def quantise(model):
    model.proj = QuantisedLinear(model.proj)
    return model


@torch.no_grad()
def main():
    torch.manual_seed(1)
    x = torch.randn(64, 32)
    wanted = ScaledHead()(x)
    got = quantise(ScaledHead())(x)
    error = (got - wanted).norm(dim=0) / wanted.norm(dim=0)
    print("worst channel error %.3f, channels lost %d" % (error.max().item(), int((error > 0.9).sum())))


if __name__ == "__main__":
    main()
