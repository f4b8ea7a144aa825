"""
title: PPO's old and new log-probabilities from bfloat16 log_softmax
expect: silent:precision-loss|downcast
modes: diagnose

After trl#4303 / NeMo-RL#3936 and OpenRLHF#1155: log-probabilities in bf16; ratios are quantised.
Damage: sequence ratio exp(sum of differences) is off by up to 0.07 for a policy that moved by 1e-3; float32: 2e-6.
Right change: logits.float() before log_softmax.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Policy(nn.Module):
    def __init__(self, vocab=128, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids))[0])


def token_logps(logits, ids):
    logp = F.log_softmax(logits, dim=-1)  # BORN
    return logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def ppo_loss(new, old, adv, clip=0.05):
    ratio = (new - old).sum(-1).float().exp()
    return -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean(), ratio


torch.manual_seed(0)
policy = Policy()
opt = torch.optim.SGD(policy.parameters(), lr=1e-3)
ids = torch.randint(0, 128, (8, 33))
adv = torch.randn(8)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    old_logits = policy(ids[:, :-1]).to(torch.bfloat16)
old = token_logps(old_logits, ids[:, 1:])
for epoch in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = policy(ids[:, :-1]).to(torch.bfloat16)
    loss, ratio = ppo_loss(token_logps(logits, ids[:, 1:]), old, adv)
    opt.zero_grad()
    loss.backward()
    opt.step()
exact = (token_logps(logits.double(), ids[:, 1:]) - token_logps(old_logits.double(), ids[:, 1:])).sum(-1).exp()
err = (ratio.detach() - exact).abs().max().item()
print("worst error of a ratio", f"{err:.1e}", "ratios", [round(v, 3) for v in ratio.tolist()[:4]])
