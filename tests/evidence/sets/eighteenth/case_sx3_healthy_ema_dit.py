"""
title: float32 EMA of a DiT trained under bfloat16 autocast, rounded into a bfloat16 copy for previews
expect: clean
thread: https://github.com/NUS-HPC-AI-Lab/VideoSys/pull/6
measured: ema error below 1e-5: True, preview finite: True, loss finite: True
suspect: 59 display-only

Expectation, written first: the DiT has float32 parameters under bfloat16 autocast and the EMA model is float32, so that
increments of a thousandth survive. For the preview the average is rounded into a separate bfloat16 model; that copy
feeds nothing back, the average stays exact and training goes on in float32.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


@torch.no_grad()
def update_ema(ema_model, model, decay=0.99):
    ema_params = dict(ema_model.named_parameters())
    for name, param in model.named_parameters():
        ema_params[name].mul_(decay).add_(param.data.to(torch.float32), alpha=1 - decay)


class DiTBlock(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU(approximate="tanh"), nn.Linear(2 * hidden, hidden))
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 3 * hidden))

    def forward(self, x, c):
        shift, scale, gate = self.adaLN_modulation(c)[:, None].chunk(3, dim=-1)
        return x + gate * self.mlp(self.norm(x) * (1 + scale) + shift)


class DiT(nn.Module):
    def __init__(self, in_channels=4, hidden=32, depth=2):
        super().__init__()
        self.x_embedder, self.t_embedder = nn.Linear(in_channels, hidden), nn.Linear(1, hidden)
        self.blocks = nn.ModuleList(DiTBlock(hidden) for _ in range(depth))
        self.final_layer = nn.Linear(hidden, in_channels)

    def forward(self, x, t):
        h, c = self.x_embedder(x), self.t_embedder(t.to(x.dtype)[:, None])
        for block in self.blocks:
            h = block(h, c)
        return self.final_layer(h)


@torch.no_grad()
def sample(ema, dtype, steps=4):
    model = copy.deepcopy(ema).to(dtype).eval()
    x = torch.randn(2, 16, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    for i in range(steps):
        x = x - model(x, torch.full((2,), 1 - i / steps)) / steps
    return x.float()


def main():
    torch.manual_seed(0)
    model = DiT()
    ema = copy.deepcopy(model).to(torch.float32)
    requires_grad(ema, False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    latents = 0.5 * torch.randn(32, 16, 4)
    reference = [p.detach().double() for p in model.parameters()]
    for step in range(50):
        x0, t = latents[torch.randint(0, 32, (8,))], torch.rand(8)
        noise = torch.randn_like(x0)
        x_t = (1 - t)[:, None, None] * x0 + t[:, None, None] * noise
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x_t, t)
        loss = F.mse_loss(pred.float(), noise - x0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        update_ema(ema, model)
        reference = [0.99 * r + 0.01 * p.detach().double() for r, p in zip(reference, model.parameters())]
    err = max((r - p.double()).abs().max().item() for r, p in zip(reference, ema.parameters()))
    print(f"ema error below 1e-5: {err < 1e-5}, preview finite: {bool(sample(ema, torch.bfloat16).isfinite().all())}, loss finite: {bool(loss.isfinite())}")


main()
