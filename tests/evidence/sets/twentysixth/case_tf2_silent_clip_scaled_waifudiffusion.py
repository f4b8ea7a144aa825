"""
title: the fp16 run hardly learns, the fp32 run does
expect: silent:plan
thread: https://github.com/harubaru/waifu-diffusion/issues/64
measured: loss first 20 1.07 last 20 1.09
widened: loss first 20 0.86 last 20 0.23; innocent: loss first 20 1.07 last 20 1.09
suspect: 59 exact (timesteps below 1000 fit int16)

Expectation, written first: clip_grad_norm_ sees the gradients still multiplied by the GradScaler's 65536, so every step is
clipped to norm 1 in the scaled unit and ends as 1/65536 after unscaling; the weights stay where they are. Remedy:
scaler.unscale_(optimizer) before the clipping. The int16 timesteps are exact.
"""
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class Args:
    fp16: bool = True
    lr: float = 0.2
    max_grad_norm: float = 1.0
    steps: int = 80
    batch_size: int = 32


class TinyUNet(nn.Module):
    def __init__(self, dim=8, hidden=64):
        super().__init__()
        self.time = nn.Embedding(1000, dim)
        self.net = nn.Sequential(nn.Linear(2 * dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, latents, timesteps):
        return self.net(torch.cat([latents, self.time(timesteps)], dim=-1))


class NoiseScheduler:
    def __init__(self, num_train_timesteps=1000):
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, num_train_timesteps) ** 2
        self.alphas_cumprod = torch.cumprod(1 - betas, 0)

    def add_noise(self, latents, noise, timesteps):
        a = self.alphas_cumprod[timesteps].unsqueeze(-1)
        return a.sqrt() * latents + (1 - a).sqrt() * noise


class StableDiffusionTrainer:
    def __init__(self, unet, args):
        self.unet, self.args = unet, args
        self.noise_scheduler = NoiseScheduler()
        self.optimizer = torch.optim.SGD(unet.parameters(), lr=args.lr)
        self.scaler = torch.amp.GradScaler("cpu", enabled=args.fp16)
        self.generator = torch.Generator().manual_seed(64)

    def step(self, latents):
        noise = torch.randn(latents.shape, generator=self.generator)
        timesteps = torch.randint(0, 1000, (len(latents),), generator=self.generator).to(torch.int16)
        timesteps = timesteps.long()
        noisy = self.noise_scheduler.add_noise(latents, noise, timesteps)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.args.fp16):
            noise_pred = self.unet(noisy, timesteps)
        loss = F.mse_loss(noise_pred.float(), noise, reduction="mean")
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.unet.parameters(), self.args.max_grad_norm)  # BORN
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.item()

    def train(self):
        losses = []
        for _ in range(self.args.steps):
            latents = 0.2 * torch.randn(self.args.batch_size, 8, generator=self.generator)
            losses.append(self.step(latents))
        return losses


def main():
    torch.manual_seed(64)
    trainer = StableDiffusionTrainer(TinyUNet(), Args())
    losses = trainer.train()
    print(f"loss first 20 {sum(losses[:20]) / 20:.2f} last 20 {sum(losses[-20:]) / 20:.2f}")


if __name__ == "__main__":
    main()
