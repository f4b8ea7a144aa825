"""
title: gradients summed up in tensors of the default dtype cannot be assigned to bfloat16 weights
expect: collision

Adding bfloat16 gradients to float32 sums is allowed and even wise; handing the sums over as they are is not. Assigning
a gradient is an attribute write and no operator at all.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Accumulator:
    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.sums = [torch.zeros(p.shape) for p in self.parameters]  # BORN
        self.count = 0

    def collect(self):
        for total, p in zip(self.sums, self.parameters):
            total += p.grad
            p.grad = None
        self.count += 1

    def hand_over(self):
        for total, p in zip(self.sums, self.parameters):
            p.grad = total / self.count  # COLLIDES
            total.zero_()
        self.count = 0


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3)).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
accumulator = Accumulator(model)
for micro in range(4):
    logits = model(torch.randn(8, 6, dtype=torch.bfloat16))
    F.cross_entropy(logits.float(), torch.randint(0, 3, (8,))).backward()
    accumulator.collect()
accumulator.hand_over()
optimizer.step()
print("stepped", model[0].bias.dtype)
