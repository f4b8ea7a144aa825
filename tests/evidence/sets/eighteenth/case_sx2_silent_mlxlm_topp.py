"""
title: a tight nucleus masks every token and the sampler always answers token 0
expect: silent:precision-loss
thread: https://github.com/ml-explore/mlx-lm/pull/1912
measured: likeliest [5, 36, 253, 111, 300, 42], sampled [0, 0, 0, 0, 0, 0]
widened: likeliest [5, 36, 253, 111, 300, 42], sampled [5, 36, 253, 111, 300, 42]
innocent: likeliest [5, 36, 253, 111, 300, 42], sampled [0, 0, 0, 0, 0, 0]
suspect: line 55 harmless (the order of the tokens survives the rounding)

Expectation, written first: tokens are kept whose ascending cumulative probability exceeds 1 - top_p, compared in bfloat16.
With top_p = 1e-3 the threshold rounds to 1.0, nothing exceeds it, every token is masked and argmax over -inf gives 0
instead of the likeliest token. Normalizing the logits in bfloat16 is not the cause.
"""
import torch
import torch.nn as nn


def apply_top_p(logprobs, top_p):
    probs = torch.softmax(logprobs, dim=-1)  # BORN
    sorted_indices = torch.argsort(logprobs, dim=-1)
    sorted_probs = torch.gather(probs, -1, sorted_indices)
    cumulative_probs = torch.cumsum(sorted_probs, dim=-1)  # BORN
    inverse_indices = torch.argsort(sorted_indices, dim=-1)
    cumulative_probs = torch.gather(cumulative_probs, -1, inverse_indices)
    return torch.where(cumulative_probs > 1 - top_p, logprobs, -float("inf"))  # BORN


def categorical_sampling(logprobs, temp, generator):
    uniform = torch.rand(logprobs.shape, generator=generator)
    gumbel = -torch.log(-torch.log(uniform.clamp(1e-7, 1 - 1e-7)))
    return torch.argmax(logprobs.float() / temp + gumbel, dim=-1)


def make_sampler(temp=0.8, top_p=0.0, generator=None):
    def sampler(logprobs):
        if 0 < top_p < 1.0:
            logprobs = apply_top_p(logprobs, top_p)
        return categorical_sampling(logprobs, temp, generator)
    return sampler


class TinyLM(nn.Module):
    def __init__(self, vocab=512, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)

    def forward(self, tokens):
        return self.embed(tokens) @ self.embed.weight.t()


def generate(model, prompts, sampler):
    sampled, likeliest = [], []
    for prompt in prompts:
        logits = model(torch.tensor([prompt]))
        logprobs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
        likeliest.append(int(logprobs.argmax()))
        sampled.append(int(sampler(logprobs)))
    return sampled, likeliest


def main():
    torch.manual_seed(0)
    model = TinyLM().to(torch.bfloat16)
    sampler = make_sampler(top_p=1e-3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        sampled, likeliest = generate(model, (5, 36, 253, 111, 300, 42), sampler)
    print(f"likeliest {likeliest}, sampled {sampled}")


main()
