"""
title: training under autocast, a float32 running average, validation outside autocast
expect: clean

The average has the dtype of the weights it follows, labels are 64-bit, pictures arrive as bytes and are scaled to
float32, the validation runs in float32 because nothing tells it otherwise.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pictures(count):
    label = torch.randint(0, 3, (count,))
    picture = torch.randint(0, 120, (count, 1, 8, 8), dtype=torch.uint8)
    picture[torch.arange(count), 0, label] += 120
    return TensorDataset(picture, label)


def scaled(picture):
    return picture.float() / 255 - 0.5


@torch.no_grad()
def follow(slow, fast, decay=0.5):
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 1 - decay)
    for mine, theirs in zip(slow.buffers(), fast.buffers()):
        mine.copy_(theirs)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = torch.cat([model(scaled(picture)).argmax(dim=-1) == label for picture, label in loader])
    return right.float().mean().item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(0.1), nn.Flatten(), nn.Linear(128, 3)
    )
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(pictures(64), batch_size=16, shuffle=True)
    for epoch in range(3):
        model.train()
        for picture, label in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(scaled(picture)), label, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow(average, model)
        print("epoch", epoch, "right", validate(average, loader))


if __name__ == "__main__":
    main()
