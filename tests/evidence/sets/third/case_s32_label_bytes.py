"""
title: 300 instance ids stored as bytes
expect: silent:overflow|downcast
modes: diagnose

After COCO panoptic masks in uint8 and urvashik/knnlm#6 (token ids in int16): ids above 255 wrap.
Damage: 15 % of the labels are another class; class 256 becomes 0. Right change: int16 or int32 in the cache.
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 300


class Products(Dataset):
    def __init__(self, n=600, dim=16):
        gen = torch.Generator().manual_seed(0)
        self.centres = torch.randn(CLASSES, dim, generator=gen)
        y = torch.randint(0, CLASSES, (n,), generator=gen)
        self.x = self.centres[y] + 0.1 * torch.randn(n, dim, generator=gen)
        self.true = y
        self.y = y.to(torch.uint8)  # BORN

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.true[i]


class Classifier(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, 64), nn.ReLU())
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


torch.manual_seed(0)
model = Classifier()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
seen = set()
wrong = 0
for epoch in range(2):
    for x, y, true in DataLoader(Products(), batch_size=60):
        target = y.long()
        loss = nn.functional.cross_entropy(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen.update(target.tolist())
        wrong += int((target != true).sum())
print("loss", round(loss.item(), 3), "classes seen", len(seen), "wrong labels", wrong, "of 1200")
