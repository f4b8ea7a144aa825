"""
title: a survival product is guarded by a clamp at 1 - 1e-6, in bfloat16
expect: silent:precision-loss|overflow|downcast|gradient-dtype
thread: https://github.com/fastino-ai/GLiNER2/pull/155
measured: loss of the first step 0.44, weights that are not finite after it 45
widened: loss of the first step 0.44, weights that are not finite after it 0

Expectation, written first: next to one bfloat16 has steps of 1/256, the limit is rounded to 1 and clamps nothing; a
saturated probability gives log1p(-1), minus infinity, the loss stays finite and the gradients are NaN. The padding
weights are bfloat16 too, but are zeros and ones.
"""
import torch
from torch import nn


class Boundary(nn.Module):
    def __init__(self, width=8, spans=6):
        super().__init__()
        self.score = nn.Linear(width, spans)

    def forward(self, x):
        return self.score(x)


def marginal_consistency(logits, marginal, padding):
    probabilities = logits.sigmoid()  # BORN
    log_survival = torch.log1p(-probabilities.clamp(max=1.0 - 1e-6))  # BORN
    weight = (~padding).to(torch.bfloat16)
    log_survival = log_survival.masked_fill(padding, 0)
    present = 1 - log_survival.sum(-1).exp()
    rows = weight.max(-1).values.float()
    return ((present.float() - marginal).square() * rows).sum() / rows.sum()


class Trainer:
    def __init__(self, lr=0.05):
        torch.manual_seed(0)
        self.model = Boundary().to(torch.bfloat16)  # BORN
        with torch.no_grad():
            self.model.score.bias.add_(2.0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def step(self, x, marginal, padding):
        loss = marginal_consistency(self.model(x.to(self.model.score.weight.dtype)), marginal, padding)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def damaged(self):
        return sum((~p.isfinite()).sum().item() for p in self.model.parameters())


def batch(gen, n=32):
    x = 2 * torch.randn(n, 8, generator=gen)
    padding = torch.zeros(n, 6, dtype=torch.bool)
    padding[::3, 4:] = True
    return x.to(torch.bfloat16), (x[:, 0] > 0).float(), padding


def main():
    gen = torch.Generator().manual_seed(1)
    trainer = Trainer()
    x, marginal, padding = batch(gen)
    x[0] = 12 * trainer.model.score.weight[0].detach().sign()
    first = trainer.step(x, marginal, padding)
    print(f"loss of the first step {first:.2f}, weights that are not finite after it {trainer.damaged()}")


main()
