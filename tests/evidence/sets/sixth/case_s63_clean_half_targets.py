"""
title: a teacher's best logits are stored as float16 with 16-bit token numbers, the student's loss is float32
expect: clean

After https://github.com/deepspeedai/DeepSpeedExamples/pull/754 and https://github.com/pytorch/torchtitan/issues/2336.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(806)


class Stored:
    """The best k logits of each position; token numbers fit into int16."""

    def __init__(self, logits, k=16):
        values, places = logits.topk(k, dim=-1)
        rest = logits.logsumexp(-1, keepdim=True)
        self.values, self.places = (values - rest).half(), places.to(torch.int16)

    def targets(self):
        return self.values.float(), self.places.long()


class Model(nn.Module):
    def __init__(self, vocab=300, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.net, self.out = nn.Linear(2 * dim, 64), nn.Linear(64, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        x = torch.cat([x, F.pad(x, (0, 0, 1, 0))[:, :-1]], dim=-1)
        return self.out(F.gelu(self.net(x)))


def distil(student, ids, stored):
    values, places = stored.targets()
    logp = student(ids).log_softmax(-1).gather(-1, places)
    return (values.exp() * (values - logp)).sum(-1).mean()


def agreement(student, teacher, ids):
    with torch.no_grad():
        return (student(ids).log_softmax(-1).exp() - teacher(ids).softmax(-1)).abs().sum(-1).mean().item() / 2


teacher = Model()
with torch.no_grad():
    teacher.out.weight.mul_(15)
student = Model()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
for step in range(200):
    ids = torch.randint(0, 20, (16, 16))
    with torch.no_grad():
        stored = Stored(teacher(ids))
    loss = distil(student, ids, stored)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3), "distance", round(agreement(student, teacher, torch.randint(0, 20, (16, 16))), 3))
