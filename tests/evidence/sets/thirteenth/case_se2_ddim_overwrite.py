"""
title: adding noise to half precision latents downcasts the scheduler's table and sampling ends in NaN
expect: silent:downcast|precision-loss|overflow
thread: https://github.com/huggingface/diffusers/pull/3005
measured: std of the samples nan (data 0.855), NaN 100%
widened: std of the samples 0.647 (data 0.855), NaN 0%

Expectation, written first: add_noise stores the cast table back on the scheduler; in float16 the first cumulative
product rounds to one, one minus it is zero, and the last sampling steps divide by it. The innocent suspect is the
denoiser, which runs in bfloat16: it costs the result a digit, no more.
"""
import torch
from torch import nn


class Scheduler:
    def __init__(self, train_steps=1000, beta_start=1e-4, beta_end=0.02):
        betas = torch.linspace(beta_start, beta_end, train_steps)
        self.alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.train_steps = train_steps

    def set_timesteps(self, n):
        self.timesteps = torch.linspace(self.train_steps - 1, 0, n).round().long()

    def add_noise(self, samples, noise, timesteps):
        # make sure alphas_cumprod and timestep have the dtype of the samples
        self.alphas_cumprod = self.alphas_cumprod.to(dtype=samples.dtype)  # BORN
        alpha = self.alphas_cumprod[timesteps].view(-1, 1)
        return alpha.sqrt() * samples + (1 - alpha).sqrt() * noise

    def step(self, sample_pred, i, x):
        alpha = self.alphas_cumprod[self.timesteps[i]].float()
        after = self.alphas_cumprod[self.timesteps[i + 1]].float() if i + 1 < len(self.timesteps) else torch.ones(())
        epsilon = (x - alpha.sqrt() * sample_pred) / (1 - alpha).sqrt()
        return after.sqrt() * sample_pred + (1 - after).sqrt() * epsilon


class Denoiser(nn.Module):
    """predicts the clean sample"""

    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width + 1, 96), nn.SiLU(), nn.Linear(96, width))

    def forward(self, x, timesteps):
        t = (timesteps.float() / 1000).expand(len(x))[:, None]
        return self.net(torch.cat([x, t.to(x.dtype)], -1))


class Latents:
    def __init__(self, gen):
        self.gen = gen
        self.basis = torch.randn(2, 8, generator=gen)

    def batch(self, n=128):
        return (0.6 * torch.randn(n, 2, generator=self.gen) @ self.basis).half()


def train(model, scheduler, data, steps=250):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        clean = data.batch()
        t = torch.randint(0, 1000, (len(clean),), generator=data.gen)
        noisy = scheduler.add_noise(clean, torch.randn(clean.shape, generator=data.gen).half(), t)
        loss = (model(noisy.float(), t) - clean.float()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def sample(model, scheduler, gen, n=256, steps=40):
    x = torch.randn(n, 8, generator=gen)
    scheduler.set_timesteps(steps)
    model = model.to(torch.bfloat16)
    for i, t in enumerate(scheduler.timesteps):
        x = scheduler.step(model(x.to(next(model.parameters()).dtype), t).float(), i, x)
    return x


def main():
    torch.manual_seed(26)
    data, scheduler, model = Latents(torch.Generator().manual_seed(27)), Scheduler(), Denoiser()
    train(model, scheduler, data)
    out = sample(model, scheduler, torch.Generator().manual_seed(28))
    print(f"std of the samples {out.std():.3f} (data {data.batch(4000).float().std():.3f}), NaN {100 * out.isnan().double().mean():.0f}%")


main()
