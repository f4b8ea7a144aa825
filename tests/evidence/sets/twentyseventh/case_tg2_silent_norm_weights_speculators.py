"""
title: the normalization weights of the trained draft model are still exactly 1.0
expect: silent:lost-update
thread: https://github.com/vllm-project/speculators/pull/765
measured: hidden_norm.weight moved 0.00 largest change 0.0000  norm.weight moved 0.00 largest change 0.0000
widened: hidden_norm.weight moved 1.00 largest change 0.0646  norm.weight moved 1.00 largest change 0.0695; innocent: hidden_norm.weight moved 0.00 largest change 0.0000  norm.weight moved 0.00 largest change 0.0000
suspect: 49 exact (powers of two)

Expectation, written first: the draft model is bfloat16 throughout. Near 1.0 the next bfloat16 is 0.0039 below and 0.0078
above; AdamW moves by about the learning rate of 1e-3, which rounds back to 1.0 at every step, so the norm weights never
move while the small linear weights do. Remedy: hold the parameters in float32. The decay factors are exact.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(self.weight.dtype)


class DraftModel(nn.Module):
    def __init__(self, dim=32, vocab=64, block=4):
        super().__init__()
        self.hidden_norm = RMSNorm(dim)
        self.fc = nn.Linear(dim, dim, bias=False)
        self.norm = RMSNorm(dim)
        self.heads = nn.Linear(dim, vocab * block, bias=False)
        self.block, self.vocab = block, vocab

    def forward(self, hidden):
        x = self.hidden_norm(hidden)
        x = x + F.silu(self.fc(x))
        return self.heads(self.norm(x)).unflatten(-1, (self.block, self.vocab))


class Trainer:
    def __init__(self, model, lr):
        self.model = model.to(torch.bfloat16)  # BORN
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.0)
        self.decay = torch.tensor([0.5 ** k for k in range(model.block)], dtype=torch.bfloat16)

    def train_step(self, hidden, targets):
        logits = self.model(hidden)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
        loss = (loss.view_as(targets) * self.decay.float()).sum(-1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()  # BORN
        return loss.item()


def main():
    torch.manual_seed(765)
    trainer = Trainer(DraftModel(), lr=1e-3)
    basis = torch.randn(64, 32) * torch.linspace(0.2, 3.0, 32)
    for _ in range(60):
        tokens = torch.randint(0, 64, (128,))
        hidden = basis[tokens].to(trainer.model.fc.weight.dtype)
        trainer.train_step(hidden, torch.stack([(tokens + k) % 64 for k in range(4)], dim=1))
    for name, p in trainer.model.named_parameters():
        if "norm" in name:
            moved = (p.float() != 1.0).float().mean().item()
            print(f"{name} moved {moved:.2f} largest change {(p.float() - 1).abs().max():.4f}", end="  ")
    print()


main()
