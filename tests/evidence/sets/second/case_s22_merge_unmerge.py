"""
title: a GRPO loop merges its LoRA into bfloat16 base weights for each generation and subtracts it again
expect: silent:lost-update|precision-loss|downcast|round-trip
modes: diagnose

After huggingface/trl#6688 (drift of 67 % of the mean weight after 1,000 merge cycles) and OpenRLHF#1348. (w + d) - d is not w in
bfloat16: the frozen base walks away; after 60 cycles it is 1.0 and 1.6 % of its norm off, repaired it is exactly what it was.
Right: keep the base weight aside (or generate with unmerged adapters) and put it back.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(28)


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank
        self.merged = False

    def delta(self):
        return self.scaling * self.b @ self.a

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.delta()  # BORN
        self.merged = True

    @torch.no_grad()
    def unmerge(self):
        self.base.weight -= self.delta()  # BORN
        self.merged = False

    def forward(self, x):
        y = self.base(x)
        if not self.merged:
            extra = F.linear(F.linear(x.float(), self.a), self.b)
            y = (y.float() + self.scaling * extra).to(y.dtype)
        return y


class Policy(nn.Module):
    def __init__(self, vocab=24, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim).to(torch.bfloat16)
        self.embed.weight.requires_grad_(False)
        self.mix = LoraLinear(nn.Linear(dim, dim, bias=False).to(torch.bfloat16))
        self.head = LoraLinear(nn.Linear(dim, vocab, bias=False).to(torch.bfloat16))

    def forward(self, ids):
        return self.head(F.silu(self.mix(self.embed(ids))))

    def layers(self):
        return self.mix, self.head


@torch.no_grad()
def generate(policy, number=16, length=5):
    for layer in policy.layers():
        layer.merge()
    ids = torch.zeros(number, 1, dtype=torch.int64)
    for _ in range(length):
        probabilities = policy(ids[:, -1]).float().softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
    for layer in policy.layers():
        layer.unmerge()
    return ids


def main(cycles=60):
    policy = Policy()
    before = [layer.base.weight.clone() for layer in policy.layers()]
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=5e-3)
    for cycle in range(1, cycles + 1):
        ids = generate(policy)
        reward = (ids[:, 1:] % 2 == 0).float().mean(1)
        advantage = reward - reward.mean()
        logp = F.log_softmax(policy(ids[:, :-1]).float(), dim=-1).gather(2, ids[:, 1:, None])[..., 0].sum(1)
        loss = -(advantage * logp).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moved = [(l.base.weight.float() - b.float()).norm() / b.float().norm() for l, b in zip(policy.layers(), before)]
    print("reward", round(reward.mean().item(), 2), "frozen weights moved by", [round(m.item(), 4) for m in moved])


main()
