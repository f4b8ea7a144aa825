"""
title: the decay of a teacher's average is a tensor in the model's bfloat16: 0.999 is one, the teacher never moves
expect: silent:lost-update|precision-loss|downcast|round-trip
"""
import copy

import torch
from torch import nn

torch.manual_seed(2)


class Teacher:
    def __init__(self, student, decay):
        self.model = copy.deepcopy(student).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, student):
        for kept, new in zip(self.model.parameters(), student.parameters()):
            kept.copy_(self.decay.float() * kept + (1 - self.decay.float()) * new)


student = nn.Linear(8, 4)
teacher = Teacher(student, torch.tensor(0.999, dtype=torch.bfloat16))  # BORN
optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
target = torch.randn(8, 4)
for step in range(400):
    x = torch.randn(16, 8)
    loss = (student(x) - x @ target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    teacher.update(student)
print("decay", teacher.decay.item(), "teacher's distance", (teacher.model.weight - student.weight).norm().item())
