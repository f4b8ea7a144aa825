"""
title: log_softmax over a large vocabulary in bfloat16, the policy ratio snaps to a coarse grid
expect: silent:precision-loss|downcast
thread: https://github.com/billy-enrizky/openbrowser-ai/pull/63
measured: tokens with ratio exactly 1: 56% | clip fraction 0.437 | kl 8.47e-04
widened: tokens with ratio exactly 1: 0% | clip fraction 0.011 | kl 1.58e-04
innocent: tokens with ratio exactly 1: 56% | clip fraction 0.437 | kl 8.47e-04
suspect: line 64, zeros and ones are exact in bfloat16

Expectation, written first: the logits come out of the model in bfloat16 and are small, but the log-probabilities lie near -10 where
bfloat16 has a spacing of 1/16. The new minus old difference is a few hundredths, so it is rounded to 0 or to 0.0625 and the ratio, the
clipping and the KL estimate are wrong. Upcasting the logits for log_softmax cures it; the bfloat16 mask of zeros and ones is exact.
"""
import torch
from torch import nn
import torch.nn.functional as F


class FlowLLM(nn.Module):
    def __init__(self, vocab=20000, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        nn.init.normal_(self.lm_head.weight, std=0.08)

    def forward(self, ids, steer=None):
        h = torch.tanh(self.mix(self.embed(ids)))
        if steer is not None:
            h = h + steer.to(h.dtype)
        return self.lm_head(h)


def step_log_probs(model, state, target, condition_length, steer=None):
    logits = model(state, steer)[:, condition_length:]  # BORN
    log_probs = F.log_softmax(logits, dim=-1)  # BORN
    return log_probs.gather(-1, target[:, condition_length:, None]).squeeze(-1)


class ESPOLoss:
    def __init__(self, clip=0.04, beta=0.02):
        self.clip, self.beta = clip, beta

    def __call__(self, new, old, advantage, mask):
        log_ratio = (new - old).float()
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        per_token = -torch.min(ratio * advantage, clipped * advantage)
        kl = ratio - 1 - log_ratio
        n = mask.float().sum()
        return {
            "loss": float((per_token * mask.float()).sum() / n),
            "kl": float((kl * mask.float()).sum() / n),
            "clip_frac": float(((ratio != clipped).float() * mask.float()).sum() / n),
            "unchanged": float(((ratio == 1).float() * mask.float()).sum() / n),
        }


torch.manual_seed(0)
model = FlowLLM().to(torch.bfloat16).eval()
ids = torch.randint(0, 20000, (4, 30))
target = torch.randint(0, 20000, (4, 30))
cond = 6
mask = (torch.rand(4, 30 - cond) > 0.1).to(torch.bfloat16)
advantage = torch.tensor([[1.0], [-0.5], [0.75], [-1.25]])
with torch.no_grad():
    old = step_log_probs(model, ids, target, cond)
    steer = 0.06 * torch.randn(16)
    new = step_log_probs(model, ids, target, cond, steer)
stats = ESPOLoss()(new, old, advantage, mask)
print("tokens with ratio exactly 1: %.0f%%" % (100 * stats["unchanged"]))
print("clip fraction %.3f" % stats["clip_frac"])
print("kl %.2e" % stats["kl"])
