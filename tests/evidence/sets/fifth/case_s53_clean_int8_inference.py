"""
title: int8 inference: the codes are widened to int32 before the product, scales and bias are float32
expect: clean

The right way round of https://github.com/triton-lang/triton/issues/2296 and https://github.com/Comfy-Org/comfy-kitchen/pull/133.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(302)


def codes(x, dim):
    scale = x.abs().amax(dim, keepdim=True).clamp(min=1e-8) / 127
    return (x / scale).round().clamp(-127, 127).to(torch.int8), scale


class Int8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        code, scale = codes(linear.weight.detach(), 1)
        self.register_buffer("code", code)
        self.register_buffer("scale", scale.t().contiguous())
        self.register_buffer("bias", linear.bias.detach().clone())

    def forward(self, x):
        code, scale = codes(x, -1)
        total = code.to(torch.int32) @ self.code.to(torch.int32).t()
        return total.to(torch.float32) * (scale * self.scale) + self.bias


class Classifier(nn.Module):
    def __init__(self, dim=20, hidden=64, classes=5):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        return self.out(F.gelu(self.second(F.gelu(self.first(x)))))


CENTRES = torch.randn(5, 20)


def data(count):
    label = torch.randint(0, 5, (count,))
    return CENTRES[label] + 0.9 * torch.randn(count, 20), label


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(120):
    x, label = data(64)
    loss = F.cross_entropy(model(x), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
x, label = data(500)
with torch.inference_mode():
    before = model.eval()(x)
    for name in ("first", "second", "out"):
        setattr(model, name, Int8Linear(getattr(model, name)))
    after = model(x)
score = lambda logits: round((logits.argmax(-1) == label).float().mean().item(), 3)
print("accuracy", score(before), "in int8", score(after))
