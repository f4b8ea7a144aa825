"""
title: a classifier head replaced in the dtype of the old one
expect: clean

The whole network is float16, the new head included.
"""
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.neck = nn.Linear(16, 32)
        self.head = nn.Linear(32, classes, bias=False)

    def reset_head(self, classes):
        width = self.head.in_features
        self.head = nn.Linear(width, classes, bias=False, dtype=self.head.weight.dtype)
        nn.init.zeros_(self.head.weight)

    def forward(self, image):
        hidden = torch.tanh(self.neck(self.features(image).flatten(1)))
        return self.head(hidden)


def pretrained():
    torch.manual_seed(0)
    return Classifier(1000).half()


def finetune(model, classes):
    model.reset_head(classes)
    image = torch.rand(4, 3, 17, 17).half()
    logits = model(image)
    return torch.nn.functional.cross_entropy(logits.float(), torch.arange(4) % classes)


print(finetune(pretrained(), classes=5).item())
