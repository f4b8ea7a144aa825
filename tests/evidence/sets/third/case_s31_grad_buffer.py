"""
title: gradients gathered in float32 buffers and assigned to bfloat16 parameters
expect: collision
fix_at: 21, 27

After pytorch/pytorch#191918 (grad_dtype): an accumulation buffer in float32, put back as p.grad.
Right change: cast at the assignment (p.grad = buf.to(p.dtype)), or keep float32 master weights.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Accumulator:
    def __init__(self, model):
        self.model, self.count = model, 0
        self.buffers = {n: torch.zeros_like(p, dtype=torch.float32) for n, p in model.named_parameters()}  # BORN

    def collect(self):
        for n, p in self.model.named_parameters():
            self.buffers[n] += p.grad.float()
            p.grad = None
        self.count += 1

    def release(self):
        for n, p in self.model.named_parameters():
            mean = self.buffers[n] / self.count
            p.grad = mean  # COLLIDES
            self.buffers[n].zero_()
        self.count = 0


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 16)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(F.silu(self.norm(self.enc(x)))).squeeze(-1)


torch.manual_seed(0)
model = Scorer().bfloat16()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
acc = Accumulator(model)
for step in range(2):
    for _ in range(4):
        chosen, rejected = torch.randn(2, 8, 10).bfloat16()
        margin = model(chosen) - model(rejected)
        loss = -F.logsigmoid(margin.float()).mean()
        loss.backward()
        acc.collect()
    acc.release()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
print("loss", loss.item())
