"""
title: full fine-tuning of a low-bit LLM makes the packed int32 weight a trainable parameter
expect: collision
thread: https://github.com/GreenBitAI/green-bit-llm/issues/16
fix_at: 67

Expectation, written first: the layer packs its 4-bit weight into int32 words and, when fine-tuning, wraps the words in a parameter subclass with
requires_grad=True. Stock torch lets only floating and complex tensors require gradients and refuses. The packed parameter must not require gradients
(or be held in a float dtype).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MPQWeightParameter(nn.Parameter):
    def __new__(cls, data=None, requires_grad=True, **kwargs):
        return super().__new__(cls, data, requires_grad=requires_grad)  # BORN COLLIDES

    def __init__(self, data=None, requires_grad=True, scales=None, zeros=None, w_bit=4):
        self.scales, self.zeros, self.w_bit = scales, zeros, w_bit


def pack_rows(codes, w_bit):
    per_word = 32 // w_bit
    codes = codes.view(codes.shape[0] // per_word, per_word, codes.shape[1])
    words = torch.zeros(codes.shape[0], codes.shape[2], dtype=torch.int32)  # BORN
    for j in range(per_word):
        words |= codes[:, j].to(torch.int32) << (w_bit * j)
    return words


def unpack_rows(words, w_bit):
    shifts = torch.arange(0, 32, w_bit, dtype=torch.int32)
    codes = (words.unsqueeze(1) >> shifts.view(1, -1, 1)) & (2**w_bit - 1)
    return codes.flatten(0, 1)


class MPQLinear(nn.Module):
    def __init__(self, in_channels, out_channels, w_bit=4, dtype=torch.float32, requires_grad=True):
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.w_bit, self.dtype, self.requires_grad = w_bit, dtype, requires_grad

    @classmethod
    def from_linear(cls, linear, **kwargs):
        layer = cls(linear.in_features, linear.out_features, **kwargs)
        layer.initialize(linear.weight.detach().t())
        return layer

    def initialize(self, weight):
        low, high = weight.amin(dim=0), weight.amax(dim=0)
        scales = (high - low) / (2**self.w_bit - 1)
        codes = torch.clamp(torch.round((weight - low) / scales), 0, 2**self.w_bit - 1)
        qweight = pack_rows(codes, self.w_bit)
        self.scales = nn.Parameter(scales.to(self.dtype), requires_grad=self.requires_grad)
        self.zeros = nn.Parameter(low.to(self.dtype), requires_grad=self.requires_grad)
        self.qweight = MPQWeightParameter(qweight, self.requires_grad, scales=self.scales, zeros=self.zeros)  # BORN

    def forward(self, x):
        codes = unpack_rows(self.qweight.data, self.w_bit).to(self.dtype)
        return F.linear(x, (codes * self.scales + self.zeros).t())


def get_model(args):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
    trainable = args["tune_qweight_only"] or args["full_finetune"]
    for i in (0, 2):
        model[i] = MPQLinear.from_linear(model[i], w_bit=4, requires_grad=trainable)  # BORN
    return model


def main():
    torch.manual_seed(0)
    args = {"tune_qweight_only": False, "full_finetune": True, "lr": 1e-4}
    model = get_model(args)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=args["lr"])
    loss = model(torch.randn(4, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
