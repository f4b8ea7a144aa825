"""
title: a float32 checkpoint is loaded into a bfloat16 skeleton that is widened afterwards
expect: silent:downcast

`load_state_dict` copies into the tensors that are there. The model that is trained is float32 and has only bfloat16's
digits.
"""
import io

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def restored(file):
    skeleton = network().to(torch.bfloat16)  # BORN
    skeleton.load_state_dict(torch.load(file))
    return skeleton.float()


torch.manual_seed(0)
file = io.BytesIO()
torch.save(network().state_dict(), file)
file.seek(0)
model = restored(file)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(2):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(next(model.parameters()).dtype)