"""
title: Fourier neural operator with fno_block_precision="half": the CPU's FFT has no half kernel
expect: collision
thread: https://github.com/neuraloperator/neuraloperator/issues/562
fix_at: 38

Expectation, written first: the config asks for half-precision FNO blocks and SpectralConv casts its input to float16 right before the
transform. MKL's FFT knows no Half tensor and rfftn raises.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

@dataclass
class FNOConfig:
    n_modes: tuple = (4, 4)
    hidden_channels: int = 12
    n_layers: int = 2
    fno_block_precision: str = "full"

class SpectralConv(nn.Module):
    def __init__(self, in_channels, out_channels, n_modes, fno_block_precision="full"):
        super().__init__()
        self.n_modes, self.fno_block_precision = n_modes, fno_block_precision
        self.order = len(n_modes)
        scale = (2 / (in_channels + out_channels)) ** 0.5
        self.weight = nn.Parameter(scale * torch.randn(in_channels, out_channels, *n_modes, dtype=torch.cfloat))
        self.bias = nn.Parameter(torch.zeros(out_channels, *(1,) * self.order))
    def _prepare(self, x):
        if self.fno_block_precision == "half":
            x = x.half()  # BORN
        return x
    def forward(self, x):
        batchsize, _, *mode_sizes = x.shape
        fft_dims = list(range(-self.order, 0))
        x = torch.fft.rfftn(self._prepare(x), norm="forward", dim=fft_dims)  # COLLIDES
        if self.fno_block_precision == "mixed":
            x = x.to(torch.cfloat)
        out_fft = torch.zeros(batchsize, self.weight.shape[1], *x.shape[2:], dtype=torch.cfloat)
        m1, m2 = self.n_modes
        out_fft[:, :, :m1, :m2] = torch.einsum("bixy,ioxy->boxy", x[:, :, :m1, :m2], self.weight)
        x = torch.fft.irfftn(out_fft, s=mode_sizes, dim=fft_dims, norm="forward")
        return x + self.bias

class FNOBlocks(nn.Module):
    def __init__(self, channels, n_modes, n_layers, fno_block_precision):
        super().__init__()
        self.convs = nn.ModuleList(
            SpectralConv(channels, channels, n_modes, fno_block_precision) for _ in range(n_layers))
        self.skips = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(n_layers))
    def forward(self, x, index):
        return F.gelu(self.convs[index](x) + self.skips[index](x))

class FNO(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.lifting = nn.Conv2d(3, config.hidden_channels, 1)
        self.fno_blocks = FNOBlocks(config.hidden_channels, config.n_modes, config.n_layers, config.fno_block_precision)
        self.projection = nn.Conv2d(config.hidden_channels, 1, 1)
        self.n_layers = config.n_layers
    def forward(self, x):
        grid = torch.stack(torch.meshgrid(*(torch.linspace(0, 1, s) for s in x.shape[-2:]), indexing="ij"))
        x = self.lifting(torch.cat([x, grid.expand(len(x), -1, -1, -1)], dim=1))
        for layer in range(self.n_layers):
            x = self.fno_blocks(x, layer)
        return self.projection(x)

class LpLoss:
    def __call__(self, pred, y):
        return (torch.linalg.vector_norm((pred - y).flatten(1), dim=1) / torch.linalg.vector_norm(y.flatten(1), dim=1)).mean()

def train_darcy(config, epochs=5):
    torch.manual_seed(0)
    model, loss_fn = FNO(config), LpLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    a = (torch.randn(8, 1, 16, 16) > 0).float()
    u = F.avg_pool2d(a, 5, stride=1, padding=2)
    for _ in range(epochs):
        loss = loss_fn(model(a), u)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()

if __name__ == "__main__":
    print(f"relative l2 {train_darcy(FNOConfig(fno_block_precision='half')):.4f}")  # BORN
