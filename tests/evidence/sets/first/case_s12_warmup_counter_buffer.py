"""
title: model.to(bfloat16) narrows a step counter too; it stops at 256, and the warm-up never ends
expect: silent:lost-update|downcast|precision-loss
modes: diagnose

pytorch/xla#2425, executorch#20090 (256 + 1 = 256), and counters kept as buffers. The learning rate is made from the counter.
Measured: 320 steps counted as 256: rate 0.0512 for ever, should be 0.064 now and 0.2 later.
BORN is the blanket cast; equally right is the buffer's factory, which should be an integer.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Schedule(nn.Module):
    """Travels in the model's state_dict, so that a resumed run goes on where it was."""

    def __init__(self, peak, warmup):
        super().__init__()
        self.peak, self.warmup = peak, warmup
        self.register_buffer("steps", torch.zeros(()))  # BORN

    def advance(self):
        self.steps += 1
        return self.peak * min(1.0, float(self.steps) / self.warmup)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.schedule = Schedule(peak=0.2, warmup=1000)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x):
        return self.body(x).float()


torch.manual_seed(0)
model = Tagger().to(torch.bfloat16)  # BORN
masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.SGD(masters, lr=0.0)
x, y = torch.randn(8, 6).bfloat16(), torch.randint(0, 3, (8,))
rates = []
for _ in range(320):
    rates.append(model.schedule.advance())
    for group in optimizer.param_groups:
        group["lr"] = rates[-1]
    F.cross_entropy(model(x), y).backward()
    for master, p in zip(masters, model.parameters()):
        master.grad, p.grad = p.grad.float(), None
    optimizer.step()
    with torch.no_grad():
        for master, p in zip(masters, model.parameters()):
            p.copy_(master)
print("steps taken 320, counted", int(model.schedule.steps), "rate", rates[-1], "should be", 0.2 * 320 / 1000)
