"""
title: asymmetric int8 weights: code and zero point are both unsigned bytes when one is taken from the other
expect: silent:overflow|precision-loss|precision-loss|underflow|downcast
fix_at: 26, 32

After https://github.com/tile-ai/tilelang/issues/2947 and https://github.com/ModelCloud/GPTQModel/issues/2350: every code below its zero point wraps
to 256 less the difference. The scales in half are innocent. Here the layer's output is wrong by 370 times its own size
(repaired: 0.006). Right: a signed zero point.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(31)


class QuantLinear(nn.Module):
    def __init__(self, linear, group=16):
        super().__init__()
        self.group = group
        w = linear.weight.detach().view(linear.out_features, -1, group)
        low, high = w.amin(-1, keepdim=True).clamp(max=0), w.amax(-1, keepdim=True).clamp(min=0)
        scale = (high - low) / 255
        zero = (-low / scale).round()
        code = (w / scale + zero).round().clamp(0, 255)
        self.register_buffer("code", code.to(torch.uint8))
        self.register_buffer("zero", zero.to(torch.uint8))  # BORN
        self.register_buffer("scale", scale.to(torch.float16))
        self.bias = nn.Parameter(linear.bias.detach().clone(), requires_grad=False)

    def weight(self):
        centred = self.code - self.zero
        return (centred.float() * self.scale.float()).flatten(1)

    def forward(self, x):
        return F.linear(x, self.weight(), self.bias)


def quantize(model):
    for name, module in model.named_children():
        if isinstance(module, nn.Linear):
            setattr(model, name, QuantLinear(module))
        else:
            quantize(module)
    return model


class MLP(nn.Module):
    def __init__(self, dim=32, hidden=64, classes=5):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        return self.out(F.relu(self.second(F.relu(self.first(x)))))


@torch.no_grad()
def main(batches=4):
    model = MLP().eval()
    inputs = [torch.randn(16, 32) for _ in range(batches)]
    before = torch.cat([model(x) for x in inputs])
    quantize(model)
    after = torch.cat([model(x) for x in inputs])
    agree = (before.argmax(-1) == after.argmax(-1)).float().mean().item()
    print("error", round(((after - before).norm() / before.norm()).item(), 3), "agreement", round(agree, 3))


main()
