"""
title: global average pooling of a large map comes out at half its level
expect: silent:precision-loss|lost-update
thread: https://github.com/huggingface/candle/pull/3718
measured: pooled mean 0.222 logit norm 1.91
widened: pooled mean 0.501 logit norm 4.30; innocent: pooled mean 0.222 logit norm 1.91
suspect: 59 tolerant (activations between 0.2 and 0.8 keep three digits, the mean averages the rest)

Expectation, written first: the running sum over the 96x96 positions is kept in half; from 2048 on a step below one
is half an ulp and is rounded away, so the sum stalls and the mean is about half of the true one. Remedy: accumulate in
float32 and round once. The activations in half are harmless.
"""
import torch
from torch import nn


class VarBuilder:
    def __init__(self, tensors, dtype):
        self.tensors = tensors
        self.dtype = dtype

    def get(self, name):
        return self.tensors[name].to(self.dtype)


class StreamingAvgPool(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def vec_reduce_sum(self, xs):
        res = torch.zeros(xs.shape[0], dtype=self.dtype)  # BORN
        for i in range(xs.shape[1]):
            res += xs[:, i]  # BORN
        return res

    def forward(self, feature_map):
        channels = feature_map.shape[0]
        flat = feature_map.reshape(channels, -1)
        return (self.vec_reduce_sum(flat) / flat.shape[1]).to(self.dtype)


class Classifier(nn.Module):
    def __init__(self, vb):
        super().__init__()
        self.pool = StreamingAvgPool(vb.dtype)  # BORN
        self.weight = vb.get("head.weight")
        self.bias = vb.get("head.bias")

    def forward(self, feature_map):
        pooled = self.pool(feature_map)
        return pooled, self.weight.float() @ pooled.float() + self.bias.float()


def backbone(image, generator):
    base = 0.2 + 0.6 * torch.rand(8, 96, 96, generator=generator)
    gate = torch.sigmoid(image.mean())
    features = base * (0.75 + 0.5 * gate)
    return features.half()


def load_tensors(generator):
    return {
        "head.weight": torch.randn(5, 8, generator=generator),
        "head.bias": torch.zeros(5),
    }


@torch.no_grad()
def main():
    generator = torch.Generator().manual_seed(3718)
    vb = VarBuilder(load_tensors(generator), dtype=torch.float16)  # BORN
    model = Classifier(vb)
    pooled, logits = model(backbone(torch.zeros(3, 8, 8), generator))
    print(f"pooled mean {pooled.float().mean().item():.3f} logit norm {logits.norm().item():.2f}")


main()
