"""
title: a list of weights widens the picture's feature, the prototypes are half
expect: collision
fix_at: 41

Encoder, texts and prototypes are half. The picture's feature was half as well until it met a list of Python floats
that became a tensor of the default dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TwinEncoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width
        self.text = nn.EmbeddingBag(64, width)
        self.image = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, width))


class ZeroShot:
    templates = ((1, 2), (3, 4, 5), (6,))

    def __init__(self, encoder):
        self.encoder = encoder
        self.spread = torch.tensor([1.0 / (1 + rank) for rank in range(encoder.width)])  # BORN
        self.prototypes = {}

    def learn(self, name, token):
        total = torch.zeros(self.encoder.width, dtype=torch.half)
        for template in self.templates:
            feature = self.encoder.text(torch.tensor([[*template, token]]))
            total += F.normalize(feature, dim=-1)[0]
        self.prototypes[name] = total / len(self.templates)

    def bank(self):
        return F.normalize(torch.stack(list(self.prototypes.values())), dim=-1)

    def __call__(self, picture):
        feature = F.normalize(self.encoder.image(picture) * self.spread, dim=-1)
        score = 100 * feature @ self.bank().t()  # COLLIDES
        return dict(zip(self.prototypes, score.softmax(dim=-1)[0].tolist()))


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    classifier = ZeroShot(TwinEncoder().half())
    for token, name in enumerate(("cat", "dog", "owl"), start=20):
        classifier.learn(name, token)
    print(classifier(torch.rand(1, 3, 17, 17).half()))


main()
