"""
title: pair consistency loss clamps bf16 probabilities at 1 - 1e-6
expect: silent:precision-loss|overflow|downcast
thread: https://github.com/fastino-ai/GLiNER2/pull/155
measured: step 0 loss 0.5300 broken gradient entries 289 / step 1 loss nan broken gradient entries 340 / step 2 loss nan broken gradient entries 340
widened: step 0 loss 0.5295 broken gradient entries 0 / step 1 loss 0.5292 broken gradient entries 0 / step 2 loss 0.5290 broken gradient entries 0

Expectation, written first: 1 - 1e-6 is exactly 1 in bf16, the clamp does nothing, a
saturated probability gives log1p(-1) and the backward pass is not finite; the encoder
receives NaN from a loss that printed a number.
"""
import torch
from torch import nn


class SpanScorer(nn.Module):
    def __init__(self, dim=16, labels=4):
        super().__init__()
        self.encoder = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, labels)

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))


def marginal_consistency(logits, owner, n_pairs):
    probs = torch.sigmoid(logits)  # BORN
    log_survival = torch.log1p(-probs.clamp(max=1.0 - 1e-6))
    joint = torch.zeros(n_pairs, logits.shape[1], dtype=log_survival.dtype)
    joint = joint.index_add(0, owner, log_survival)
    return (1 - joint.exp()).float()


def step(model, opt, x, owner, labels):
    logits = model(x)
    marginal = marginal_consistency(logits, owner, labels.shape[0])
    loss = nn.functional.mse_loss(marginal, labels)
    opt.zero_grad()
    loss.backward()
    broken = sum((~torch.isfinite(p.grad)).sum().item() for p in model.parameters())
    opt.step()
    return loss.item(), broken


def main():
    torch.manual_seed(0)
    model = SpanScorer()
    with torch.no_grad():
        model.head.bias[0] = 9.0
    model = model.to(torch.bfloat16)  # BORN
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 16)
    owner = torch.arange(32) // 4
    labels = (torch.rand(8, 4) > 0.5).float()
    for i in range(3):
        loss, broken = step(model, opt, x.to(model.head.weight.dtype), owner, labels)
        print(f"step {i} loss {loss:.4f} broken gradient entries {broken}")


main()
