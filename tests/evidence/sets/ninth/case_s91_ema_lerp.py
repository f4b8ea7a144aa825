"""
title: float32 EMA follows a bf16 student with lerp_
expect: collision
thread: https://github.com/HomebrewML/HeavyBall/issues/2
fix_at: 28

Expectation, written first: the student is bfloat16, the averaged copy is float32 on
purpose, and lerp_ wants its end in the dtype of self. The student's cast and the
float32 of the average are the two decisions; the cast of the end fixes it best.
"""
import copy

import torch
from torch import nn


class AveragedCopy:
    def __init__(self, model, decay=0.999, warmup=10):
        self.decay, self.warmup, self.seen = decay, warmup, 0
        self.model = copy.deepcopy(model).float().eval()  # BORN
        self.model.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.seen += 1
        decay = min(self.decay, (1 + self.seen) / (self.warmup + self.seen))
        for avg, live in zip(self.model.parameters(), model.parameters()):
            avg.lerp_(live, 1 - decay)  # COLLIDES


class Classifier(nn.Module):
    def __init__(self, width=32, classes=5):
        super().__init__()
        self.stem = nn.Linear(12, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.stem(x))))


def batches(n, generator):
    centers = torch.randn(5, 12, generator=generator)
    for _ in range(n):
        y = torch.randint(0, 5, (32,), generator=generator)
        yield centers[y] + 0.3 * torch.randn(32, 12, generator=generator), y


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(4)
    student = Classifier().to(torch.bfloat16)  # BORN
    teacher = AveragedCopy(student)
    opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches(8, gen)):
        logits = student(x.to(student.stem.weight.dtype)).float()
        loss = nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        teacher.update(student)
        print(step, round(loss.item(), 4))


main()
