"""
title: class weights for segmentation, from pixel counts held in float16
expect: silent:overflow
modes: diagnose

After swfsql's sum of ones (tracel-ai/burn#4109, inf above 65504) in a class-balanced loss.
Damage: the background's count is inf and its weight exactly 0: the class gets no gradient at all and is predicted nowhere
(repaired: weight 0.006, half of the pixels). Right change: count in int64 or float32.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Masks:
    def __init__(self, n, size, classes):
        gen = torch.Generator().manual_seed(2)
        self.images = torch.rand(n, 3, size, size, generator=gen)
        self.labels = torch.zeros(n, size, size, dtype=torch.long)
        self.labels[:, 10:20, 10:20] = 1
        self.labels[:, 30:34, 30:38] = 2
        self.classes = classes


def class_weights(data, dtype):
    counts = torch.zeros(data.classes, dtype=dtype)
    for label in data.labels.split(16):
        onehot = F.one_hot(label, data.classes).to(dtype)  # BORN
        counts += onehot.sum((0, 1, 2))  # BORN
    weights = 1.0 / counts
    return weights / weights.sum()


class Segmenter(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.b = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


torch.manual_seed(0)
data = Masks(24, 64, 3)
weights = class_weights(data, torch.float16)  # BORN
net = Segmenter(3)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for i in range(0, 24, 8):
    x, y = data.images[i:i + 8], data.labels[i:i + 8]
    loss = F.cross_entropy(net(x), y, weight=weights.float())
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    pred = net(data.images[:8]).argmax(1)
print("weights", weights.tolist(), "background predicted", round((pred == 0).float().mean().item(), 3))
