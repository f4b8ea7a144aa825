"""
title: a zero-shot forecaster takes its context in the weights' bfloat16 before it is scaled
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/TimeCopilot/timecopilot/issues/307
measured: scaled error (seasonal naive = 1): 6.23
widened: scaled error (seasonal naive = 1): 0.83
fix_at: 48

Expectation, written first: a load near 20000 with a daily swing of 60 has steps of 128 in
bfloat16; the context is flat before instance scaling and the forecast misses the swing.
"""
import torch
from torch import nn


class PatchForecaster(nn.Module):
    def __init__(self, context=96, horizon=24):
        super().__init__()
        self.head = nn.Linear(context, horizon, bias=False)
        nn.init.zeros_(self.head.weight)
        with torch.no_grad():
            for h in range(horizon):
                self.head.weight[h, h::24] = 24 / context

    def forward(self, context):
        centre = context.float().mean(-1, keepdim=True)
        spread = context.float().std(-1, keepdim=True) + 1e-5
        z = (context.float() - centre) / spread
        out = self.head(z.to(self.head.weight.dtype)).float()
        return out * spread + centre


class Pipeline:
    def __init__(self, dtype):
        self.model = PatchForecaster().to(dtype)

    @torch.no_grad()
    def predict(self, series):
        context = series[:, -96:].to(self.model.head.weight.dtype)  # BORN
        return self.model(context)


def main():
    gen = torch.Generator().manual_seed(0)
    t = torch.arange(240, dtype=torch.float64)
    level = 20000 + 1500 * torch.rand(8, 1, generator=gen, dtype=torch.float64)
    load = level + 60 * torch.sin(2 * torch.pi * t / 24) + 4 * torch.randn(8, 240, generator=gen, dtype=torch.float64)
    forecast = Pipeline(torch.bfloat16).predict(load[:, :216])
    error = (forecast - load[:, 216:]).abs().mean().item()
    naive = (load[:, 192:216] - load[:, 216:]).abs().mean().item()
    print(f"scaled error (seasonal naive = 1): {error / naive:.2f}")


main()
