"""
title: sampling from bfloat16 probabilities always returns the same few tokens of a large vocabulary
expect: silent:precision-loss|downcast
thread: https://github.com/InternLM/lmdeploy/pull/1239
measured: draws 4000 distinct tokens 700 most frequent 20 | share of the second half of the vocabulary 0.5
widened: draws 4000 distinct tokens 3200 most frequent 0 | share of the second half of the vocabulary 0.5; innocent: draws 4000 distinct tokens 700 most frequent 20 | share of the second half of the vocabulary 0.5
suspect: line 19 - innocent: the temperature 0.75 is exact in bfloat16

Expectation, written first: the softmax keeps the logits' bfloat16 and the cumulative sum does so too. Near 1 it has
steps of 2**-8, so hundreds of tokens share one value and only the first of each run can be drawn. The tail of the
vocabulary is hit in lumps. With float32 probabilities thousands of different tokens come up.
"""
import torch
from torch import nn


class SamplingParam:
    def __init__(self, temperature=0.75, top_k=0):
        self.temperature = torch.tensor(temperature, dtype=torch.bfloat16)
        self.top_k = top_k


class FusedLogitsProcessor:
    def __init__(self, param, seed=0):
        self.param = param
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, logits):
        if self.param.top_k:
            kth = logits.topk(self.param.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < kth, float("-inf"))
        return logits / self.param.temperature

    def sampling(self, logits):
        probs = logits.softmax(dim=-1)  # BORN
        return multinomial_sampling(probs, self.gen)


def multinomial_sampling(probs, gen):
    acc = probs.cumsum(dim=-1)  # BORN
    seeds = torch.rand(probs.shape[0], 1, generator=gen)
    index = torch.searchsorted(acc.float().contiguous(), seeds)
    return index.squeeze(-1).clamp(max=probs.shape[-1] - 1)


class LMHead(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab, dim, dtype=torch.bfloat16) * 0.12)

    def forward(self, hidden):
        return hidden.to(self.weight.dtype) @ self.weight.T


@torch.no_grad()
def main(vocab=20000, draws=4000):
    torch.manual_seed(2)
    head = LMHead(vocab, 32)
    processor = FusedLogitsProcessor(SamplingParam(temperature=0.75))
    hidden = torch.randn(1, 32)
    logits = processor(head(hidden))
    tokens = []
    for start in range(0, draws, 200):
        tokens.append(processor.sampling(logits.expand(200, -1)))
    tokens = torch.cat(tokens)
    values, counts = torch.unique(tokens, return_counts=True)
    last_half = (tokens >= vocab // 2).float().mean()
    print(f"draws {len(tokens)} distinct tokens {round(len(values), -2)} most frequent {counts.max().item() // 10 * 10}")
    print(f"share of the second half of the vocabulary {last_half:.1f}")


if __name__ == "__main__":
    main()
