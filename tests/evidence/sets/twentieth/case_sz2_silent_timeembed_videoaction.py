"""
title: the diffusion step of an action head is cast to bfloat16 before its sinusoidal embedding, and neighbouring steps coincide
expect: silent:precision-loss|downcast
thread: https://github.com/valeoai/VideoActionModel/issues/35
measured: distinct embeddings 504 of 1000 ; velocity at ten neighbouring steps [-0.38, -0.38, -0.38, -0.35, -0.35, -0.35, -0.35, -0.35, -0.29, -0.29]
widened: distinct embeddings 1000 of 1000 ; velocity at ten neighbouring steps [-0.21, -0.33, -0.44, -0.49, -0.48, -0.38, -0.32, -0.3, -0.29, -0.28]
innocent: distinct embeddings 504 of 1000 ; velocity at ten neighbouring steps [-0.38, -0.38, -0.38, -0.35, -0.35, -0.35, -0.35, -0.35, -0.29, -0.29]
suspect: 28 late (rounding the finished sines keeps the steps apart)

Expectation, written first: t runs through a thousand steps of [0, 1]; as bfloat16 the steps above one half are 1/256 apart, so four neighbouring steps
share one number and one embedding, and only about 500 to 600 of the steps remain distinct. The embedding is cast to bfloat16 at its end too, which looks
as bad, but with a fast enough frequency the rounded sines still differ.
"""
import math
import torch
from torch import nn


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim, max_period=10000.0, time_scale=1000.0):
        super().__init__()
        self.dim, self.max_period, self.time_scale = dim, max_period, time_scale

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(self.max_period) * torch.arange(half).float() / half)
        args = t[:, None].float() * self.time_scale * freqs[None]
        return torch.cat([args.sin(), args.cos()], -1).to(torch.bfloat16)


class ActionEncoder(nn.Module):
    def __init__(self, action_dim=2, dim=64):
        super().__init__()
        self.time = SinusoidalPosEmb(dim)
        self.linear = nn.Linear(action_dim, dim)
        self.out = nn.Linear(dim, action_dim)

    def forward(self, actions, t):
        emb = self.time(t).float()
        return self.out(torch.tanh(self.linear(actions) + emb))


class FlowMatcher:
    def __init__(self, model, num_steps=1000):
        self.model, self.num_steps = model, num_steps

    def timesteps(self):
        return torch.linspace(0, 1, self.num_steps, dtype=torch.bfloat16)  # BORN

    def sample_time(self, index):
        return self.timesteps()[index]


@torch.no_grad()
def main():
    torch.manual_seed(2)
    model = ActionEncoder()
    flow = FlowMatcher(model)
    t = flow.timesteps()
    emb = model.time(t)
    print(f"distinct embeddings {len(torch.unique(emb, dim=0))} of {flow.num_steps}")
    actions = torch.zeros(1, 2).expand(10, 2)
    velocity = model(actions, flow.sample_time(torch.arange(900, 910)))
    print("velocity at ten neighbouring steps", [round(v, 2) for v in velocity[:, 0].tolist()])


main()
