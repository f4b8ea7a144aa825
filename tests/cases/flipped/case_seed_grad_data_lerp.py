"""
title: one of AdamW's two moments re-made in float32 while weights and gradients are bfloat16
expect: collision

The gradients are left alone. After the first step the moving average of each weight is swapped for a float32 copy; the
second moment and everything else stays bfloat16, and the second step refuses.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.after_backward = [self.keep_moments_precise]

    def keep_moments_precise(self):
        for state in self.optimizer.state.values():
            state["exp_avg"] = state["exp_avg"].to(torch.float32)  # BORN

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x).float(), y)
        loss.backward()
        for hook in self.after_backward:
            hook()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()  # COLLIDES
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item(), norm.item()


torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 3)).to(torch.bfloat16), lr=1e-2)
for _ in range(2):
    print(trainer.step(torch.randn(8, 12, dtype=torch.bfloat16), torch.randint(0, 3, (8,))))
