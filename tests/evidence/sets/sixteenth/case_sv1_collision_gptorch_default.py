"""
title: setting up a Gaussian process library changes the default dtype, and a network built later is float64
expect: collision
thread: https://github.com/cics-nd/gptorch/issues/22
fix_at: 15, 22, 39, 57, 58, 59, 61

Expectation, written first: the pictures of the user are float32 (they come from uint8 by .float()); the network is
built after the library's set-up, which set the default to float64 for the whole process; the first layer refuses.
Cause: the line that sets the default dtype (or the place that calls it before building, or the network that is left
in the default).
"""
import torch
from torch import nn

TORCH_DTYPE = torch.float64  # BORN


class GPLibrary:
    """what `import gp` does"""

    def __init__(self):
        torch.set_default_dtype(TORCH_DTYPE)  # BORN
        self.jitter = 1e-8

    def posterior_mean(self, x, y, at, length=0.3, noise=1e-2):
        x, y, at = x.to(TORCH_DTYPE), y.to(TORCH_DTYPE), at.to(TORCH_DTYPE)
        gram = torch.exp(-torch.cdist(x, x).square() / (2 * length**2))
        chol = torch.linalg.cholesky(gram + (noise + self.jitter) * torch.eye(len(x), dtype=TORCH_DTYPE))
        cross = torch.exp(-torch.cdist(at, x).square() / (2 * length**2))
        return cross @ torch.cholesky_solve(y, chol)


class Frames:
    def __init__(self, n, gen):
        self.pixels = torch.randint(0, 256, (n, 1, 12, 12), generator=gen, dtype=torch.uint8)
        self.when = torch.rand(n, 1, generator=gen, dtype=torch.float32)

    def batch(self):
        return self.pixels.float() / 255, self.when


class Encoder(nn.Module):
    def __init__(self, out=1):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.fc = nn.Linear(4 * 36, out)

    def forward(self, x):
        h = torch.relu(self.conv(x))  # COLLIDES
        return self.fc(h.flatten(1))


def main():
    gen = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    frames = Frames(24, gen)
    gp = GPLibrary()  # BORN
    encoder = Encoder()  # BORN
    pictures, when = frames.batch()
    with torch.no_grad():
        codes = encoder(pictures)
    smooth = gp.posterior_mean(when, codes, torch.linspace(0, 1, 5)[:, None])
    print(tuple(smooth.shape), bool(smooth.isfinite().all()))


main()
