"""
title: bfloat16 weights with a float32 master copy, gradients widened before they are added up
expect: clean

After https://github.com/workofart/ml-by-hand/pull/85 (a float32 master copy) and https://github.com/NVIDIA/apex/pull/42.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(44)


class MasterAdam:
    def __init__(self, params, **options):
        self.live = list(params)
        self.master = [p.detach().float().clone().requires_grad_() for p in self.live]
        self.inner = torch.optim.AdamW(self.master, **options)

    def collect(self, share):
        for live, master in zip(self.live, self.master):
            grad = live.grad.float() * share
            master.grad = grad if master.grad is None else master.grad.add_(grad)
            live.grad = None

    @torch.no_grad()
    def step(self, limit=1.0):
        nn.utils.clip_grad_norm_(self.master, limit)
        self.inner.step()
        self.inner.zero_grad()
        for live, master in zip(self.live, self.master):
            live.copy_(master)

    def state_dict(self):
        return {"master": [m.detach().clone() for m in self.master], "inner": self.inner.state_dict()}

    def load_state_dict(self, state):
        with torch.no_grad():
            for live, master, saved in zip(self.live, self.master, state["master"]):
                master.copy_(saved)
                live.copy_(saved)
        self.inner.load_state_dict(state["inner"])


def build():
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 3)).to(torch.bfloat16)


def train(model, optimizer, steps, micro=4):
    for step in range(steps):
        for _ in range(micro):
            x = torch.randn(32, 8)
            y = x[:, :3].argmax(-1)
            loss = F.cross_entropy(model(x.to(torch.bfloat16)).float(), y)
            loss.backward()
            optimizer.collect(1 / micro)
        optimizer.step()
    return loss.item()


model = build()
optimizer = MasterAdam(model.parameters(), lr=5e-3)
train(model, optimizer, 12)
state = optimizer.state_dict()
model = build()
optimizer = MasterAdam(model.parameters(), lr=5e-3)
optimizer.load_state_dict(state)
print("loss", round(train(model, optimizer, 12), 3))
