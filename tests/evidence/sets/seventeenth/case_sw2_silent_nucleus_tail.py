"""
title: top-p no longer cuts the tail of a large vocabulary: softmax and cumsum run in BF16
expect: silent:precision-loss|downcast
thread: https://github.com/NVIDIA/Megatron-LM/pull/7182
measured: tokens kept by top-p 0.999 of 60000: mean 60000, min 60000, max 60000
widened: tokens kept by top-p 0.999 of 60000: mean 32699, min 27596, max 36746
innocent: tokens kept by top-p 0.999 of 60000: mean 60000, min 60000, max 60000
suspect: 56 bf16 hidden state: small (a fraction of a percent on logits, before an FP32 head)

Expectation, written first: The logits leave the head in BF16 and softmax and cumsum stay there. Near one BF16 has steps of 0.004, and the
    small rounded probabilities never carry the cumulative sum over 0.999, so no token is dropped. The BF16 hidden state before the FP32
    head moves the logits by a fraction of a percent only.
"""
import torch
from torch import nn


class OutputLayer(nn.Module):
    def __init__(self, hidden, vocab, params_dtype=torch.bfloat16):  # BORN
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab, hidden) * 0.15)
        self.bias = nn.Parameter(-1.5 * torch.log(torch.arange(1, vocab + 1).float()))
        self.params_dtype = params_dtype

    def forward(self, hidden):
        logits = nn.functional.linear(hidden.float(), self.weight, self.bias)
        return logits.to(self.params_dtype)  # BORN


class TorchSampling:
    def __init__(self, top_p, generator):
        self.top_p, self.generator = top_p, generator

    def modify_logits_for_top_p(self, logits):
        ordered, order = torch.sort(logits, descending=True)
        probs = ordered.softmax(dim=-1)  # BORN
        cumulative = probs.cumsum(dim=-1)  # BORN
        drop = cumulative > self.top_p
        drop[..., 1:] = drop[..., :-1].clone()
        drop[..., 0] = False
        return ordered.masked_fill(drop, float("-inf")), order, ~drop

    def sample(self, logits):
        kept, order, mask = self.modify_logits_for_top_p(logits)
        probs = kept.float().softmax(dim=-1)
        pick = torch.multinomial(probs, 64, replacement=True, generator=self.generator)
        return order.gather(1, pick), mask.sum(1)


class Decoder(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        return self.norm(x).to(torch.bfloat16)
torch.manual_seed(0)
vocab, hidden = 60000, 24
decoder, head = Decoder(hidden), OutputLayer(hidden, vocab)
sampler = TorchSampling(top_p=0.999, generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    tokens, kept = sampler.sample(head(decoder(torch.randn(8, hidden))))
print(f"tokens kept by top-p 0.999 of {vocab}: mean {kept.float().mean():.0f}, min {kept.min()}, max {kept.max()}")
