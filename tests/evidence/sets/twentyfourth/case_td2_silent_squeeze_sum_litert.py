"""
title: squeeze-and-excite block yields NaN logits when the map is large
expect: silent:overflow
thread: https://github.com/google-ai-edge/LiteRT/issues/9249
measured: non-finite logits 30 of 30, top-1 [0, 0, 0]
widened: non-finite logits 0 of 30, top-1 [5, 5, 5]; innocent: non-finite logits 30 of 30, top-1 [0, 0, 0]
suspect: 22 tolerant (1/12544 is a normal half number, off by less than 0.05 percent)

Expectation, written first: the global mean is written as SUM times a constant; the SUM over 112x112 positions with
values near 8 comes to about 1e5, above 65504, so it is inf in half, the excitation inf - inf and the logits NaN.
Remedy: sum into float32. The constant in half is harmless.
"""
import torch
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced, spatial):
        super().__init__()
        self.reduce = nn.Conv2d(channels, reduced, 1)
        self.expand = nn.Conv2d(reduced, channels, 1)
        self.register_buffer("inv_count", torch.tensor(1.0 / spatial ** 2, dtype=torch.float16))

    def squeeze(self, x):
        total = x.sum(dim=(2, 3), keepdim=True)  # BORN
        return (total * self.inv_count).to(x.dtype)

    def forward(self, x):
        gate = torch.nn.functional.silu(self.reduce(self.squeeze(x)))
        return x * torch.sigmoid(self.expand(gate))


class MBConvStem(nn.Module):
    def __init__(self, channels=8, spatial=112, num_classes=10):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.se = SqueezeExcite(channels, 4, spatial)
        self.project = nn.Conv2d(channels, channels, 1)
        self.pool = nn.AdaptiveAvgPool2d(8)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = torch.nn.functional.silu(self.depthwise(x))
        x = self.project(self.se(x))
        x = self.pool(x).amax(dim=(2, 3))
        return self.classifier(x)


class CompiledModel:
    def __init__(self, module, precision):
        self.module = module.eval().to(precision)
        self.precision = precision

    @torch.no_grad()
    def run(self, inputs):
        outputs = [self.module(x.unsqueeze(0).to(self.precision)) for x in inputs]
        return torch.cat(outputs).float()


def build_module():
    module = MBConvStem()
    with torch.no_grad():
        module.depthwise.weight.abs_().mul_(4.0)
        module.depthwise.bias.fill_(6.0)
    return module


def main():
    torch.manual_seed(9249)
    compiled = CompiledModel(build_module(), torch.float16)  # BORN
    inputs = torch.rand(3, 8, 112, 112)
    logits = compiled.run(inputs)
    bad = (~torch.isfinite(logits)).sum().item()
    print(f"non-finite logits {bad} of {logits.numel()}, top-1 {logits.argmax(1).tolist()}")


main()
