"""
title: FourierFT adapter on a bfloat16 layer makes its spectrum in the layer's dtype
expect: collision
thread: https://github.com/Chaos96/fourierft/issues/17
culprit: 0.spectrum

Expectation, written first.  The frozen base layer is bfloat16, which is fine.
The adapter learns a handful of Fourier coefficients and builds its weight
difference by an inverse 2-D FFT.  The coefficient vector is created with the
dtype of the base weight; the dense spectrum follows it and ifft2 has no
bfloat16.  BORN is the creation of the parameter; a float32 spectrum works, as
the difference is cast to the base dtype after the transform.
"""
import torch
from torch import nn

torch.manual_seed(0)


class FourierLinear(nn.Module):
    def __init__(self, base, n_frequency=40, scale=30.0, seed=777):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = scale
        out_f, in_f = base.weight.shape
        g = torch.Generator().manual_seed(seed)
        entry = torch.randperm(out_f * in_f, generator=g)[:n_frequency]
        self.register_buffer("rows", entry // in_f)
        self.register_buffer("cols", entry % in_f)
        self.spectrum = nn.Parameter(torch.randn(n_frequency, dtype=base.weight.dtype) * 0.01)  # BORN

    def delta(self):
        dense = torch.zeros(self.base.weight.shape, dtype=self.spectrum.dtype)
        dense[self.rows, self.cols] = self.spectrum
        return torch.fft.ifft2(dense).real * self.scale  # COLLIDES

    def forward(self, x):
        w = self.base.weight + self.delta().to(self.base.weight.dtype)
        return nn.functional.linear(x, w, self.base.bias)


def build():
    backbone = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(torch.bfloat16)
    return nn.Sequential(FourierLinear(backbone[0]), backbone[1], FourierLinear(backbone[2]))


def main():
    model = build()
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=5e-2)
    x = torch.randn(128, 16)
    y = (x[:, :4] + 0.1 * torch.randn(128, 4)).argmax(1)
    first = None
    for _ in range(30):
        logits = model(x.to(torch.bfloat16)).float()
        loss = nn.functional.cross_entropy(logits, y)
        first = first or loss.item()
        opt.zero_grad()
        loss.backward()
        opt.step()
    n = sum(p.numel() for p in trainable)
    print(f"{n} trainable coefficients, loss {first:.3f} -> {loss.item():.3f}")


if __name__ == "__main__":
    main()
