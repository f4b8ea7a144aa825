"""
title: the draft's norm weights never leave 1.0 when the training loop builds its own AdamW
expect: silent:lost-update|plan|precision-loss
thread: https://github.com/NVIDIA/Model-Optimizer/pull/2483
measured: loss first 10 0.084 last 10 0.083 / norm entries still exactly 1.0: 24 of 24
widened: loss first 10 0.083 last 10 0.001 / norm entries still exactly 1.0: 0 of 24; innocent: loss first 10 0.084 last 10 0.083 / norm entries still exactly 1.0: 24 of 24
suspect: 53 exact (warmup counts divided by 128 are exact in float16)

Expectation, written first: the draft is loaded in bfloat16 and AdamW works on these parameters directly. Next to 1.0 a
bfloat16 step is 1/256 to 1/128, an Adam step is at most the learning rate 1e-3, so each update is rounded away. Remedy:
float32 master weights. The warmup factor in float16 is exact.
"""
import torch
from torch import nn
import torch.nn.functional as F


class DFlashConfig:
    hidden = 24
    dtype = torch.bfloat16  # BORN
    lr = 1e-3
    steps = 300
    warmup = 16


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)
        return h * self.weight.float()


class DraftHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.q_norm = RMSNorm(cfg.hidden)
        self.scale = nn.Parameter(torch.ones(cfg.hidden))

    def forward(self, hidden):
        return self.q_norm(hidden) * self.scale.float()


def load_draft(cfg):
    return DraftHead(cfg).to(cfg.dtype)  # BORN


def warmup_factor(step, cfg):
    ramp = torch.tensor(min(step + 1, cfg.warmup) * 8, dtype=torch.float16) / 128
    return float(ramp)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = load_draft(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.0)  # BORN
        self.generator = torch.Generator().manual_seed(2483)
        self.target = 0.6 + 0.25 * torch.rand(cfg.hidden, generator=self.generator)

    def batch(self):
        hidden = torch.randn(32, self.cfg.hidden, generator=self.generator)
        wanted = F.rms_norm(hidden, (self.cfg.hidden,)) * self.target
        return hidden, wanted

    def train(self):
        losses = []
        for step in range(self.cfg.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.cfg.lr * warmup_factor(step, self.cfg)
            hidden, wanted = self.batch()
            loss = F.mse_loss(self.model(hidden), wanted)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()  # BORN
            losses.append(loss.item())
        return losses


def main():
    torch.manual_seed(0)
    trainer = Trainer(DFlashConfig())
    losses = trainer.train()
    weight = trainer.model.q_norm.weight
    print(f"loss first 10 {sum(losses[:10]) / 10:.3f} last 10 {sum(losses[-10:]) / 10:.3f}")
    print(f"norm entries still exactly 1.0: {int((weight == 1).sum())} of {weight.numel()}")


if __name__ == "__main__":
    main()
