"""
title: an almost greedy nucleus is cut with probabilities in the dtype of the model's head
expect: silent:precision-loss|downcast
thread: https://github.com/ml-explore/mlx-lm/pull/1912
measured: most likely word taken 0%, distinct words 1
widened: most likely word taken 100%, distinct words 24

Expectation, written first: 1 - 0.001 is 1 in bfloat16, no cumulative probability is above it, every token is masked
and the sampler returns whatever stands first. The penalties for repeated words are bfloat16 too, they are exact
halves.
"""
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, dim, vocab):
        super().__init__()
        self.out = nn.Linear(dim, vocab, bias=False)

    def forward(self, h, penalty):
        return (self.out(h) - penalty.float()).log_softmax(-1).to(torch.bfloat16)  # BORN


class Sampler:
    def __init__(self, top_p, temperature, gen):
        self.top_p, self.temperature, self.gen = top_p, temperature, gen

    def nucleus(self, logprobs):
        ascending = logprobs.sort(-1)
        cumulative = ascending.values.exp().cumsum(-1)
        limit = torch.ones((), dtype=logprobs.dtype) - self.top_p  # BORN
        kept = torch.where(cumulative > limit, ascending.values, float("-inf"))
        return torch.empty_like(logprobs).scatter_(-1, ascending.indices, kept)

    def __call__(self, logprobs):
        logits = self.nucleus(logprobs).float() / self.temperature
        noise = -torch.empty(logits.shape).exponential_(generator=self.gen).log()
        return (logits + noise).argmax(-1)


class Writer:
    def __init__(self, head, sampler, vocab, dim):
        self.head, self.sampler = head, sampler
        self.table = torch.randn(vocab, dim)
        self.penalty = torch.zeros(vocab, dtype=torch.bfloat16)

    @torch.no_grad()
    def write(self, token, length):
        tokens, greedy = [], 0
        for _ in range(length):
            logprobs = self.head(torch.tanh(self.table[token]), self.penalty)
            token = int(self.sampler(logprobs[None]))
            greedy += int(logprobs[token] == logprobs.max())
            self.penalty *= 0.5
            self.penalty[token] = 4.0
            tokens.append(token)
        return tokens, greedy / length


def main():
    torch.manual_seed(18)
    head = Head(48, 2000)
    nn.init.normal_(head.out.weight, std=0.6)
    sampler = Sampler(top_p=0.001, temperature=0.8, gen=torch.Generator().manual_seed(1))
    tokens, greedy = Writer(head, sampler, 2000, 48).write(5, 200)
    print(f"most likely word taken {100 * greedy:.0f}%, distinct words {len(set(tokens))}")


main()
