"""
title: a masked language sampler that picks tokens by adding Gumbel noise
expect: silent:precision-loss|downcast|underflow
thread: https://github.com/vllm-project/vllm/pull/37798
measured: share of rare tokens 0.0019, model says 0.0500
widened: share of rare tokens 0.0505, model says 0.0500

Expectation, written first: the uniform draws are made in bf16, which knows 256 steps,
so the largest Gumbel value is about 5.5 and rare tokens can hardly ever win; their share is
far below their probability. BORN is the draw; in float32 the tail of the noise is there.
"""
import torch
from torch import nn


class UnigramModel(nn.Module):
    """One likely token and many rare ones, with a little context."""

    def __init__(self, vocab, likely):
        super().__init__()
        logits = torch.full((vocab,), (1 - likely) / (vocab - 1)).log()
        logits[0] = torch.tensor(likely).log()
        self.register_buffer("logits", logits)

    def forward(self, tokens):
        return self.logits.expand(len(tokens), -1)


class GumbelSampler:
    def __init__(self, temperature, seed):
        self.temperature = temperature
        self.gen = torch.Generator().manual_seed(seed)

    def noise(self, shape):
        u = torch.rand(shape, generator=self.gen, dtype=torch.bfloat16)  # BORN
        return -torch.log(-torch.log(u))

    def __call__(self, logits):
        return (logits + self.temperature * self.noise(logits.shape)).argmax(-1)


class Unmasker:
    def __init__(self, model, sampler, mask_id=-1):
        self.model, self.sampler, self.mask_id = model, sampler, mask_id

    @torch.no_grad()
    def fill(self, length, rounds):
        tokens = torch.full((length,), self.mask_id)
        for part in torch.arange(length).chunk(rounds):
            tokens[part] = self.sampler(self.model(part))
        return tokens


def main():
    likely = 0.95
    unmasker = Unmasker(UnigramModel(501, likely), GumbelSampler(1.0, seed=0))
    drawn = unmasker.fill(length=20000, rounds=20)
    rare = (drawn != 0).double().mean().item()
    print("share of rare tokens %.4f, model says %.4f" % (rare, 1 - likely))


if __name__ == "__main__":
    main()
