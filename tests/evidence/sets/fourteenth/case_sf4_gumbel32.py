"""
title: tokens are drawn with Gumbel noise in float32 instead of float64
expect: clean
thread: https://github.com/vllm-project/vllm/pull/34854
measured: distance from the softmax 0.01, rare tokens drawn 1.0 times as often as they should

Expectation, written first: the noise is float32 and the uniform numbers are kept from zero; for a vocabulary of a few
hundred tokens the drawn frequencies agree with the softmax as well as float64 noise does. The bfloat16 logits are
the model's output and given.
"""
import torch


class GumbelSampler:
    def __init__(self, temperature, seed):
        self.temperature = temperature
        self.gen = torch.Generator().manual_seed(seed)

    def noise(self, shape):
        u = torch.rand(shape, generator=self.gen, dtype=torch.float32)
        return -torch.log(-torch.log(u.clamp(min=1e-20)))

    def __call__(self, logits):
        scores = logits.float() / self.temperature
        return (scores + self.noise(scores.shape)).argmax(-1)


def head(vocab, seed):
    gen = torch.Generator().manual_seed(seed)
    return (2.0 * torch.randn(vocab, generator=gen)).to(torch.bfloat16)


def total_variation(counts, probabilities):
    return 0.5 * (counts / counts.sum() - probabilities).abs().sum().item()


def decode(sampler, logits, rounds, batch):
    counts = torch.zeros(logits.shape[-1], dtype=torch.float64)
    for _ in range(rounds):
        drawn = sampler(logits.expand(batch, -1))
        counts += torch.bincount(drawn, minlength=len(counts))
    return counts


def main():
    distances, tails = [], []
    for seed in range(3):
        logits = head(300, seed)
        sampler = GumbelSampler(temperature=1.0, seed=100 + seed)
        counts = decode(sampler, logits, rounds=20, batch=5000)
        exact = logits.double().softmax(-1)
        rare = exact < 1e-3
        distances.append(total_variation(counts, exact))
        tails.append((counts[rare].sum() / counts.sum() / exact[rare].sum()).item())
    print(f"distance from the softmax {max(distances):.2f}, rare tokens drawn {sum(tails) / 3:.1f} times as often as they should")


main()
