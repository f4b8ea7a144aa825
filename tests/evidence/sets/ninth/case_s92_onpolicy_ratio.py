"""
title: sequence log-probabilities of a bf16 actor give an on-policy ratio far from one
expect: silent:precision-loss|downcast
thread: https://github.com/OpenRLHF/OpenRLHF/pull/634
measured: median |log ratio| 1.964, clipped 98 %
widened: median |log ratio| 0.000, clipped 0 %

Expectation, written first: the actor's logits stay bf16 through log_softmax and the
sum over 400 tokens, the rollout engine reports float32 log-probabilities; the sum of
about -1500 moves in steps of 8 and the ratio is anything but one, so most sequences
are clipped at once.
"""
import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self, vocab=128, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.embed(ids)
        return self.head(h + self.mlp(h))


def gather_logps(logits, labels):
    logp = torch.log_softmax(logits, dim=-1)  # BORN
    return logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


class RolloutEngine:
    """Samples from the same weights and scores every token in float32."""

    def __init__(self, actor):
        self.actor = actor

    @torch.no_grad()
    def generate(self, batch, length, generator):
        ids = torch.randint(0, 128, (batch, length), generator=generator)
        logits = self.actor(ids[:, :-1])
        logp = logits.float().log_softmax(-1)
        return ids, logp.gather(-1, ids[:, 1:, None]).squeeze(-1)


def policy_stats(actor, ids, old, clip=0.2):
    new = gather_logps(actor(ids[:, :-1]), ids[:, 1:])
    ratio = torch.exp((new.sum(-1).float() - old.sum(-1)).clamp(-20, 20))
    clipped = ((ratio - 1).abs() > clip).float().mean()
    return ratio, clipped


if __name__ == "__main__":
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    actor = Actor().to(torch.bfloat16)  # BORN
    ids, old = RolloutEngine(actor).generate(64, 401, gen)
    ratio, clipped = policy_stats(actor, ids, old)
    print(f"median |log ratio| {ratio.log().abs().median().item():.3f}, clipped {100 * clipped.item():.0f} %")
