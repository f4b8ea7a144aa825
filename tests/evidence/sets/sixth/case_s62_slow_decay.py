"""
title: the decays of a state space layer are bfloat16 with the model, the slow ones are exactly one and nothing is forgotten
expect: silent:precision-loss|downcast

After https://github.com/state-spaces/mamba/pull/923, https://github.com/vllm-project/vllm/issues/13466 and https://github.com/vllm-project/vllm/pull/22928.
Right: the decays are computed in float32.
"""
import torch
from torch import nn

torch.manual_seed(716)


class SlowStates(nn.Module):
    """h = decay * h + (1 - decay) * x, with time constants from 4 to 2000 steps."""

    def __init__(self, channels=16):
        super().__init__()
        self.log_rate = nn.Parameter(torch.linspace(1.4, 7.6, channels).neg())

    def decay(self):
        return torch.exp(-torch.exp(self.log_rate))  # BORN

    def forward(self, x):
        decay = self.decay().float()
        gain = torch.exp(self.log_rate.float())
        state, out = torch.zeros(x.shape[0], x.shape[2]), []
        for t in range(x.shape[1]):
            state = decay * state + gain * x[:, t].float()
            out.append(state)
        return torch.stack(out, dim=1)


class Smoother(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.inner = nn.Linear(1, channels, bias=False)
        self.states = SlowStates(channels)
        nn.init.ones_(self.inner.weight)

    def forward(self, series):
        return self.states(self.inner(series[..., None]))


@torch.no_grad()
def run(series, dtype):
    return Smoother().to(dtype)(series.to(dtype))


series = (1 + 0.5 * torch.randn(4, 1500)).bfloat16().float()
out, exact = run(series, torch.bfloat16), run(series, torch.float64)
print("slowest state", round(out[:, -1, -1].mean().item(), 3), "exact", round(exact[:, -1, -1].mean().item(), 3),
      "error of the states", round((out - exact).abs().mean().item(), 4))
