"""
title: distillation: hidden states of a bfloat16 teacher go into a float32 adapter of the student
expect: collision
fix_at: 37, 38

unsloth #3723 in small: teacher and student have different dtypes; the student is trained in float32.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.mix = nn.Embedding(30, width), nn.Linear(width, width)

    def forward(self, ids):
        return torch.tanh(self.mix(self.embed(ids)))


class Student(Net):
    def __init__(self, width, teacher_width):
        super().__init__(width)
        self.align = nn.Linear(teacher_width, width)

    def distance(self, hidden, target):
        return F.mse_loss(hidden, self.align(target))  # COLLIDES


torch.manual_seed(0)
teacher = Net(24).to(torch.bfloat16).eval().requires_grad_(False)  # BORN
student = Student(12, 24)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
ids = torch.randint(0, 30, (2, 6))
with torch.no_grad():
    target = teacher(ids)
loss = student.distance(student(ids), target)
loss.backward()
optimizer.step()
