"""
title: a bfloat16 teacher and a float32 student under accelerate, soft targets and masks in float32 and bool
expect: clean
needs: accelerate

The fp32 loss of https://github.com/deepspeedai/DeepSpeedExamples/pull/754 in a distillation.
"""
import torch
from accelerate import Accelerator
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(49)


def classifier(width):
    return nn.Sequential(nn.Linear(10, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 6))


def fit_teacher(x, y, steps=20):
    teacher = classifier(64)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = F.cross_entropy(teacher(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.eval().requires_grad_(False).to(torch.bfloat16)


class Distiller:
    def __init__(self, teacher, temperature=2.0, share=0.7):
        self.teacher, self.temperature, self.share = teacher, temperature, share

    def __call__(self, logits, x, y, known):
        with torch.no_grad():
            target = self.teacher(x.to(torch.bfloat16)).float()
        T = self.temperature
        soft = F.kl_div((logits / T).log_softmax(-1), (target / T).log_softmax(-1), log_target=True, reduction="batchmean") * T * T
        hard = F.cross_entropy(logits, y, reduction="none")
        hard = (hard * known).sum() / known.sum().clamp(min=1)
        return self.share * soft + (1 - self.share) * hard


def data(rows=256):
    y = torch.randint(0, 6, (rows,))
    x = F.one_hot(y, 10).float() + 0.4 * torch.randn(rows, 10)
    return x, y, torch.rand(rows) < 0.5


x, y, known = data()
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
distil = Distiller(fit_teacher(x, y))
student = classifier(24)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(x, y, known), batch_size=64, shuffle=True)
student, optimizer, loader = accelerator.prepare(student, optimizer, loader)
for epoch in range(5):
    for bx, by, bknown in loader:
        loss = distil(student(bx).float(), bx, by, bknown)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
right = (student(x).argmax(-1) == y).sum().item()
print("loss", round(loss.item(), 3), "right", right, "of", len(y))
