"""
title: weight-only int8 quantization of a BERT encoder, one float32 scale per output channel
expect: clean
thread: https://github.com/huggingface/optimum-quanto/issues/137
measured: largest 1 - cosine 1.3e-07, equal ranks 1.000, bytes saved 165888

Expectation, written first: weights are rounded to nearest on a symmetric grid of their own row, clamped before the cast
to int8, and multiplied back in float32. The hidden states keep a cosine of more than 0.999 with the original's.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel


def quantize_rows(weight, bits=8):
    top = 2 ** (bits - 1) - 1
    scale = weight.detach().float().abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / top
    q = torch.round(weight.detach().float() / scale).clamp(-top, top).to(torch.int8)
    return q, scale


class QLinear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        q, scale = quantize_rows(linear.weight)
        self.register_buffer("qweight", q)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, self.qweight.to(torch.float32) * self.scale, self.bias)

    def extra_repr(self):
        return f"{self.qweight.shape[1]} -> {self.qweight.shape[0]}, int8"


class Quantizer:
    def __init__(self, skip=("pooler",)):
        self.skip, self.saved = skip, 0

    def __call__(self, model):
        model = copy.deepcopy(model)
        for parent_name, parent in list(model.named_modules()):
            for name, child in list(parent.named_children()):
                path = f"{parent_name}.{name}"
                if isinstance(child, nn.Linear) and not any(s in path for s in self.skip):
                    setattr(parent, name, QLinear(child))
                    self.saved += child.weight.numel() * 3
        return model


class SentenceEncoder:
    def __init__(self, model):
        self.model = model.eval()

    @torch.inference_mode()
    def __call__(self, ids):
        mask = (ids != 0).long()
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).float()
        pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return F.normalize(pooled, dim=-1)


def corpus(n=12, length=14):
    g = torch.Generator().manual_seed(2)
    ids = torch.randint(3, 150, (n, length), generator=g)
    lengths = torch.randint(6, length + 1, (n,), generator=g)
    return ids.masked_fill(torch.arange(length)[None] >= lengths[:, None], 0)


def main():
    torch.manual_seed(0)
    model = BertModel(BertConfig(
        vocab_size=150, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=32,
    ))
    quantizer = Quantizer()
    quantized = quantizer(model)
    ids = corpus()
    full, low = SentenceEncoder(model)(ids), SentenceEncoder(quantized)(ids)
    cosine = (full.double() * low.double()).sum(-1)
    ranks = (full @ full.T).argsort(-1) == (low @ low.T).argsort(-1)
    assert cosine.min() > 0.999, cosine
    print(f"largest 1 - cosine {(1 - cosine).max():.1e}, equal ranks {ranks.double().mean():.3f}, bytes saved {quantizer.saved}")


if __name__ == "__main__":
    main()
