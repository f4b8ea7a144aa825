"""
title: features leave the autocast region in bfloat16 and the whitening loss asks for their eigenvalues
expect: collision
fix_at: 31, 32, 47

After HomebrewML/HeavyBall#57, TransformerLensOrg/TransformerLens#934 and bytedance/LatentSync#241 (eigh/qr/svd not implemented for
BFloat16). The weights are float32; the last linear of the encoder ran under autocast, the loss is taken outside, on what came out.
No kernel: the decomposition must be done in float32. Right change: .float() on the features where the loss begins.
"""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, inp=12, width=24, out=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inp, width), nn.BatchNorm1d(width), nn.ReLU())
        self.proj = nn.Linear(width, out)

    def forward(self, x):
        h = self.body(x)
        return self.proj(h)  # BORN


class WhiteningLoss(nn.Module):
    def __init__(self, eps=1e-3, weight=0.1):
        super().__init__()
        self.eps, self.weight = eps, weight

    def spectrum(self, z):
        z = z - z.mean(0)
        covariance = z.T @ z / (len(z) - 1)
        return torch.linalg.eigvalsh(covariance)  # COLLIDES

    def forward(self, a, b):
        invariance = (a - b).float().square().mean()
        spread = sum((self.spectrum(z) + self.eps).log().square().mean() for z in (a, b))
        return invariance + self.weight * spread


def train(encoder, criterion, steps=2):
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.randn(32, 12)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a, b = encoder(x + 0.1 * torch.randn_like(x)), encoder(x + 0.1 * torch.randn_like(x))
        loss = criterion(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.isfinite().item())


torch.manual_seed(0)
train(Encoder(), WhiteningLoss())
