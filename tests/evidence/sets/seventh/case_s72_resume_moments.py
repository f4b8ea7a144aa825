"""
title: The checkpoint stores Adam's second moment in float16
expect: silent:underflow|precision-loss|downcast|zero-gradient
thread: https://github.com/ultralytics/ultralytics/pull/24085
measured: validation loss before the resume = 0.0351, six steps after = 0.0783
widened: validation loss before the resume = 0.0351, six steps after = 0.0341

Expectation, written first.  To make last.pt smaller the trainer converts the
float32 tensors of the optimizer state to half before saving.  The second
moments of this well-trained detector head are far below the
smallest half (6e-8), so they are saved as zero; after the resume the update is
m / eps and the weights jump: the loss explodes.  BORN is the .half() of the
conversion; keeping float32 there, training continues as if nothing happened.
"""
import io

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def data(step, n=64):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(n, 10, generator=g)
    return x, torch.sin(x[:, :2])


def train(model, optimizer, first, last):
    for step in range(first, last):
        x, y = data(step)
        loss = nn.functional.mse_loss(model(x), y) * 1e-3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model):
    x, y = data(10_000, 2000)
    return nn.functional.mse_loss(model(x), y).item()


def build():
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=2e-3)


def convert_optimizer_state_dict(state_dict):
    for state in state_dict["state"].values():
        for key, value in state.items():
            if key != "step" and isinstance(value, torch.Tensor) and value.dtype is torch.float32:
                state[key] = value.half()  # BORN
    return state_dict


def save(model, optimizer):
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": convert_optimizer_state_dict(optimizer.state_dict())}, buffer)
    buffer.seek(0)
    return buffer


def resume(buffer):
    checkpoint = torch.load(buffer)
    model, optimizer = build()
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer


if __name__ == "__main__":
    model, optimizer = build()
    train(model, optimizer, 0, 400)
    before = validate(model)
    model, optimizer = resume(save(model, optimizer))
    train(model, optimizer, 400, 406)
    print(f"validation loss before the resume = {before:.4f}, six steps after = {validate(model):.4f}")
