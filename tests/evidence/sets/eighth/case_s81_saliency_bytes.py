"""
title: a saliency map for an image that is kept as bytes
expect: collision
thread: https://github.com/pytorch/pytorch/issues/95110
fix_at: 47

Expectation, written first: the image is a uint8 tensor and the explainer asks for
gradients at the raw image: only Tensors of floating point and complex dtype can require
gradients. BORN is where the image is turned to uint8 by the loader; float32 there mends it.
"""
import torch
from torch import nn


class Loader:
    def __init__(self, size=16):
        self.size = size

    def open(self, index):
        gen = torch.Generator().manual_seed(index)
        image = 40 + 30 * torch.rand(3, self.size, self.size, generator=gen)
        r = 2 + index
        image[:, r:r + 5, r:r + 5] += 120
        return image.round().to(torch.uint8)  # BORN


class Normalise(nn.Module):
    def forward(self, x):
        return (x / 255.0 - 0.5) / 0.25


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(Normalise(), nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(8 * 49, 5))

    def forward(self, x):
        return self.net(x)


class Saliency:
    def __init__(self, model):
        self.model = model.eval()

    def explain(self, image):
        pixels = image.clone()[None]
        pixels.requires_grad_(True)  # COLLIDES
        score = self.model(pixels).amax()
        score.backward()
        return pixels.grad[0].abs().amax(0)


def peak(heat):
    return divmod(int(heat.flatten().argmax()), heat.shape[1])


def main():
    torch.manual_seed(0)
    loader, explainer = Loader(), Saliency(Classifier())
    for index in range(3):
        heat = explainer.explain(loader.open(index))
        print("image", index, "strongest pixel", peak(heat), "mean %.5f" % heat.mean().item())


if __name__ == "__main__":
    main()
