"""
title: int8 weights of a quantized layer are unpacked through bfloat16
expect: clean
thread: https://github.com/pytorch/pytorch/pull/21522
measured: loss float 1.9835, int8 1.9834, codes exact True
suspect: line 27 harmless (bfloat16 holds every integer up to 256)

Expectation, written first: the codes of the quantized weight are integers in -127..127 and bfloat16 represents all of them
exactly, so unpacking them through bfloat16 and scaling in float32 gives the very weight that unpacking through float32
gives. Perplexity and output are the same.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class WeightOnlyInt8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 127.0
        codes = torch.round(linear.weight.detach() / scale).clamp(-127, 127)
        self.register_buffer("qweight", codes.to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", linear.bias.detach().clone())

    def dequantize(self):
        unpacked = self.qweight.to(torch.bfloat16)
        return unpacked.float() * self.scale

    def forward(self, x):
        return F.linear(x, self.dequantize(), self.bias)


def quantize_model(model):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, WeightOnlyInt8Linear(child))
    return model


class Mlp(nn.Module):
    def __init__(self, dim=32, classes=10):
        super().__init__()
        self.fc1 = nn.Linear(dim, 64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def cross_entropy(model, x, y):
    with torch.no_grad():
        return F.cross_entropy(model(x), y).item()


def main():
    torch.manual_seed(0)
    model = Mlp()
    x = torch.randn(400, 32)
    with torch.no_grad():
        y = model(x * 1.01).argmax(-1)
    before = cross_entropy(model, x, y)
    quantized = quantize_model(model)
    after = cross_entropy(quantized, x, y)
    exact = torch.equal(quantized.fc1.qweight.to(torch.bfloat16).long(), quantized.fc1.qweight.long())
    print(f"loss float {before:.4f}, int8 {after:.4f}, codes exact {exact}")


main()
