"""
title: a halved segmenter's prompt encoder forces its coordinates to float32
expect: collision

After facebookresearch/segment-anything#605 (the matmul in question) and ultralytics/ultralytics#21735 ("support half inference for
SAM": removes the casts to float32). `coords.to(torch.float)` was harmless as long as the Gaussian matrix was float32; with
sam.half() the buffer is half. Right change: coords.to(self.gaussian.dtype) (which in a float32 model is what it was).
"""
import math

import torch
from torch import nn


class RandomFourier(nn.Module):
    def __init__(self, features=8):
        super().__init__()
        self.register_buffer("gaussian", torch.randn(2, features))

    def encode(self, coords):
        coords = 2 * coords - 1
        coords = coords @ self.gaussian  # COLLIDES
        coords = 2 * math.pi * coords
        return torch.cat([coords.sin(), coords.cos()], -1)

    def dense(self, size):
        grid = (torch.ones(size, size, dtype=self.gaussian.dtype).cumsum(0) - 0.5) / size
        return self.encode(torch.stack([grid.T, grid], -1))

    def points(self, coords, size):
        coords = coords.clone()
        coords[..., 0] /= size
        coords[..., 1] /= size
        return self.encode(coords.to(torch.float))  # BORN


class PromptEncoder(nn.Module):
    def __init__(self, size=32, features=8):
        super().__init__()
        self.size = size
        self.fourier = RandomFourier(features)
        self.labels = nn.Embedding(2, 2 * features)

    def forward(self, points, labels):
        return self.fourier.points(points + 0.5, self.size) + self.labels(labels)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Conv2d(3, 16, 4, 4)
        self.prompt = PromptEncoder()
        self.decoder = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True, dropout=0.0)

    def forward(self, image, points, labels):
        feature = self.image(image).permute(0, 2, 3, 1) + self.prompt.fourier.dense(8)
        return self.decoder(self.prompt(points, labels), feature.flatten(1, 2))


torch.manual_seed(0)
sam = Segmenter().to(torch.bfloat16).eval()
dtype = sam.image.weight.dtype
with torch.no_grad():
    points = torch.tensor([[[4.0, 9.0], [20.0, 7.0]]], dtype=dtype)
    print(sam(torch.randn(1, 3, 32, 32, dtype=dtype), points, torch.tensor([[1, 0]])).dtype)
