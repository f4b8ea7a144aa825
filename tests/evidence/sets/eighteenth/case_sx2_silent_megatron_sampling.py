"""
title: sampling from a large vocabulary repeats a few dozen tokens: the inverse CDF in bfloat16 has few steps
expect: silent:precision-loss
thread: https://github.com/NVIDIA/Megatron-LM/pull/7182
measured: distinct tokens in 4000 draws per row [637, 607], drawn from the upper half of the vocabulary 0.50
widened: distinct tokens in 4000 draws per row [2599, 2575], drawn from the upper half of the vocabulary 0.50
innocent: distinct tokens in 4000 draws per row [637, 607], drawn from the upper half of the vocabulary 0.50
suspect: line 31 harmless (temperature scaling in bfloat16 shifts a logit by a part in 250)

Expectation, written first: softmax and cumulative sum are taken in the logits' bfloat16. Above one half the running sum
has steps of 1/256, so a whole block of tokens shares one value and only the first of each block can be drawn. A flat
distribution over 8192 tokens yields only a few hundred. Temperature scaling in bfloat16 is innocent.
"""
import torch
import torch.nn as nn


class TorchSampling:
    def __init__(self, temperature=0.9, top_p=1.0, generator=None):
        self.temperature = temperature
        self.top_p = top_p
        self.generator = generator

    def _inverse_cdf(self, probs, num_samples):
        cdf = probs.cumsum(dim=-1)  # BORN
        u = torch.rand(probs.shape[0], num_samples, generator=self.generator)
        picked = torch.searchsorted(cdf.float(), u * cdf[:, -1:].float())
        return picked.clamp_max(probs.shape[-1] - 1)

    def sample(self, logits, num_samples):
        logits = logits / self.temperature
        probs = torch.softmax(logits, dim=-1)  # BORN
        if self.top_p < 1.0:
            probs = self._nucleus(probs)
        return self._inverse_cdf(probs, num_samples)

    def _nucleus(self, probs):
        ordered, index = probs.sort(dim=-1, descending=True)
        ordered[ordered.cumsum(dim=-1) - ordered > self.top_p] = 0.0
        return torch.zeros_like(probs).scatter_(-1, index, ordered)


class LMHead(nn.Module):
    def __init__(self, hidden=32, vocab=8192):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab, hidden) * 0.15)

    def forward(self, hidden_states):
        return hidden_states @ self.weight.t()


def diversity(tokens):
    return [len(torch.unique(row)) for row in tokens]


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    head = LMHead().to(torch.bfloat16)
    sampler = TorchSampling(generator=generator)
    with torch.no_grad():
        logits = head(torch.randn(2, 32).to(torch.bfloat16))
    tokens = sampler.sample(logits, num_samples=4000)
    late = (tokens > 4096).float().mean().item()
    print(f"distinct tokens in 4000 draws per row {diversity(tokens)}, drawn from the upper half of the vocabulary {late:.2f}")


main()
