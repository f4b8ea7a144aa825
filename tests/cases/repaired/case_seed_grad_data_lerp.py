"""
title: gradients that keep the dtype of their bfloat16 weights
expect: clean

AdamW's moving average takes them as they come.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.after_backward = [self.keep_gradients_precise]

    def keep_gradients_precise(self):
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                p.grad.data = p.grad.data.to(p.dtype)

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x).float(), y)
        loss.backward()
        for hook in self.after_backward:
            hook()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item(), norm.item()


torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 3)).to(torch.bfloat16), lr=1e-2)
for _ in range(2):
    print(trainer.step(torch.randn(8, 12, dtype=torch.bfloat16), torch.randint(0, 3, (8,))))
