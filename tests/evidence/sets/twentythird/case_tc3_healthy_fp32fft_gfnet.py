"""
title: global filter layer under bf16 autocast does its FFT in float32 and hands the result back in the dtype of its input
expect: clean
thread: https://github.com/raoyongming/GFNet/issues/2
measured: bf16: loss 0.008, accuracy 1.0; fp32: loss 0.008, accuracy 1.0
suspect: 30 boundary

Expectation, written first: the linear layer before the filter gives bfloat16, the filter casts to float32 for rfft2 and its complex weights, and casts
the result back to bfloat16. The casts are the usual boundaries of mixed precision: one rounding each, weights stay float32. Both runs learn the task.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GlobalFilter(nn.Module):
    def __init__(self, dim, h=6, w=4):
        super().__init__()
        self.complex_weight = nn.Parameter(torch.randn(h, w, dim, 2) * 0.02)

    def forward(self, x):
        b, n, c = x.shape
        a = int(n**0.5)
        x = x.view(b, a, a, c)
        dtype = x.dtype
        x = x.to(torch.float32)
        x = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
        x = x * torch.view_as_complex(self.complex_weight)
        x = torch.fft.irfft2(x, s=(a, a), dim=(1, 2), norm="ortho")
        return x.to(dtype).reshape(b, n, c)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, dim)
        self.filter = GlobalFilter(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.filter(self.fc(self.norm1(x)))
        return x + self.mlp(self.norm2(x))


class GFNet(nn.Module):
    def __init__(self, dim=16, depth=2, classes=3):
        super().__init__()
        self.patch_embed = nn.Conv2d(1, dim, 2, stride=2)
        self.pos_embed = nn.Parameter(torch.zeros(1, 36, dim))
        self.blocks = nn.Sequential(*(Block(dim) for _ in range(depth)))
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
        return self.head(self.blocks(x).square().mean(dim=1))


def gratings(n, g):
    label = torch.randint(0, 3, (n,), generator=g)
    freq = torch.tensor([1.0, 2.0, 3.0])[label].view(n, 1, 1)
    u = torch.linspace(0, 6.283, 12)
    phase = torch.rand(n, 1, 1, generator=g) * 6.283
    return torch.sin(freq * u.view(1, 1, 12) + phase).expand(n, 12, 12).unsqueeze(1).contiguous(), label


def train(amp):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    model = GFNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(30):
        images, label = gratings(32, g)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(model(images).float(), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, label = gratings(128, g)
    with torch.no_grad():
        acc = (model(images).argmax(1) == label).float().mean().item()
    print("bf16" if amp else "fp32", "loss", round(loss.item(), 3), "accuracy", round(acc, 2))


if __name__ == "__main__":
    train(True)
    train(False)
