"""
title: Adam's moments resumed from a compact checkpoint are half, the weights are not
expect: collision
fix_at: 29, 36

load_state_dict would have cast them to the dtype of their weights. Put into the state by hand they stay what the
file holds, and the moving average is the first to compare them with a gradient.
"""
import io

import torch
import torch.nn.functional as F
from torch import nn


def steps(model, optimizer, count):
    for _ in range(count):
        x = torch.randn(16, 6)
        loss = F.mse_loss(model(x), x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # COLLIDES
    return loss.item()


def store(optimizer):
    file = io.BytesIO()
    states = (optimizer.state[p] for group in optimizer.param_groups for p in group["params"])
    torch.save([{key: value if key == "step" else value.half() for key, value in state.items()} for state in states], file)
    return file.seek(0) or file


def resume(optimizer, file):
    stored = torch.load(file)  # BORN
    for p, state in zip((p for group in optimizer.param_groups for p in group["params"]), stored):
        optimizer.state[p] = state


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 6))
first = torch.optim.Adam(model.parameters(), lr=1e-2)
print("before", round(steps(model, first, 3), 3))
second = torch.optim.Adam(model.parameters(), lr=1e-2)
resume(second, store(first))
print("after", round(steps(model, second, 3), 3))
