"""
title: the mean importance ratio of a GRPO step stalls because it is summed up in the model's bfloat16
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/PrimeIntellect-ai/prime-rl/pull/568
measured: completion tokens 3072 ; mean importance ratio 0.668
widened: completion tokens 3072 ; mean importance ratio 1.004
innocent: completion tokens 3072 ; mean importance ratio 0.668
suspect: 44 promotes (the sum of an int8 mask is an int64)

Expectation, written first: the accumulator of the ratio takes the dtype of the model's parameters, bfloat16. Every sequence adds about six,
and from 2048 on half a step of bfloat16 is eight, so the sum stands still and the mean of 512 sequences comes out near two thirds instead of
near one. The completion mask is int8, which looks as if its count would wrap at 127, but torch sums it in int64.
"""
import torch
from torch import nn


class TinyPolicy(nn.Module):
    def __init__(self, vocab=48, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.proj(self.embed(ids))))


def selective_log_softmax(logits, index):
    logp = logits.float().log_softmax(-1)
    return logp.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def grpo_loss(logp, old_logp, advantages, mask, clip=0.2):
    ratio = torch.exp(logp - old_logp)
    surr = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])
    return -(surr * mask).sum(), (ratio * mask).sum(-1)


def make_batch(vocab, n_seq=512, seq_len=7):
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(0, vocab, (n_seq, seq_len), generator=g)
    rewards = torch.randint(0, 2, (n_seq,), generator=g).float()
    mask = torch.ones(n_seq, seq_len - 1, dtype=torch.int8)
    return ids, rewards - rewards.mean(), mask


def train_step(model, batch, micro_batch=32):
    ids, adv, mask = batch
    param_dtype = next(model.parameters()).dtype  # BORN
    total = mask.sum()
    ratio_sum = torch.zeros((), dtype=param_dtype)  # BORN
    loss_sum = torch.zeros(())
    for start in range(0, ids.shape[0], micro_batch):
        sl = slice(start, start + micro_batch)
        logp = selective_log_softmax(model(ids[sl, :-1]), ids[sl, 1:])
        old = logp.detach() - 0.004
        loss, per_seq = grpo_loss(logp, old, adv[sl], mask[sl])
        (loss / total).backward()
        loss_sum += loss.detach()
        for value in per_seq.detach():
            ratio_sum += value  # BORN
    return loss_sum / total, ratio_sum / total, total


def main():
    torch.manual_seed(0)
    model = TinyPolicy().to(torch.bfloat16)
    loss, ratio, tokens = train_step(model, make_batch(48))
    print(f"completion tokens {int(tokens)}")
    print(f"mean importance ratio {float(ratio):.3f}")


main()
