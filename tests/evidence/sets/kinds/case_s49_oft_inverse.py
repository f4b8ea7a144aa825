"""
title: an orthogonal adapter is cast to bfloat16 with the rest of the model, its Cayley transform inverts a matrix
expect: collision
fix_at: 24

After https://github.com/KohakuBlueleaf/LyCORIS/issues/123.
Right: the inverse is taken in float32 and its result cast back.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)


class Orthogonal(nn.Module):
    def __init__(self, base, blocks=2):
        super().__init__()
        self.base, size = base, base.out_features // blocks
        self.skew = nn.Parameter(torch.randn(blocks, size, size) * 0.01)

    def rotation(self):
        q = self.skew - self.skew.mT
        eye = torch.eye(q.shape[-1], dtype=q.dtype).expand_as(q)
        return (eye + q) @ (eye - q).inverse()  # COLLIDES

    def forward(self, x):
        rotated = torch.block_diag(*self.rotation()) @ self.base.weight
        return F.linear(x, rotated, self.base.bias)


def adapted(dtype):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).requires_grad_(False)
    for i in (0, 2):
        model[i] = Orthogonal(model[i])
    return model.to(dtype)  # BORN


def train(model, dtype, steps=2):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(steps):
        x = torch.randn(4, 16, dtype=dtype)
        loss = F.cross_entropy(model(x).float(), torch.tensor([0, 1, 2, 3]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 4))


train(adapted(torch.bfloat16), torch.bfloat16)
