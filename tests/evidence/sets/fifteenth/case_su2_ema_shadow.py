"""
title: the averaged copy of a diffusion network follows the network in the run's weight dtype
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415
measured: validation loss: start 1.128, network 0.006, averaged 0.137
widened: validation loss: start 1.128, network 0.006, averaged 0.006

Expectation, written first: with a decay of 0.998 each step moves the average by less than half a bfloat16 step, so the
average stalls on the way and its validation loss stays far above that of the network. The prompt codes that go
through half precision are plus and minus one and lose nothing.
"""
import torch
from diffusers.training_utils import EMAModel
from torch import nn


class PromptCodes:
    """one fixed code per concept, as a stand-in for cached text states"""

    def __init__(self, concepts, width, gen):
        codes = torch.randint(0, 2, (concepts, width), generator=gen) * 2 - 1
        self.table = codes.to(torch.float16)

    def __call__(self, ids):
        return self.table[ids].float()


class Denoiser(nn.Module):
    def __init__(self, width=24, cond=12):
        super().__init__()
        self.inp = nn.Linear(width, 64)
        self.cond = nn.Linear(cond, 64)
        self.out = nn.Linear(64, width)

    def forward(self, x, c):
        return self.out(torch.nn.functional.silu(self.inp(x) + self.cond(c)))


class Trainer:
    def __init__(self, weight_dtype=torch.bfloat16, decay=0.998):  # BORN
        self.gen = torch.Generator().manual_seed(7)
        self.codes = PromptCodes(16, 12, self.gen)
        self.clean = torch.randn(16, 24, generator=self.gen)
        self.net = Denoiser()
        self.ema = EMAModel(self.net.parameters(), decay=decay, use_ema_warmup=False)
        self.ema.to(dtype=weight_dtype)  # BORN
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)

    def batch(self, n, gen):
        ids = torch.randint(0, 16, (n,), generator=gen)
        noise = torch.randn(n, 24, generator=gen)
        return self.clean[ids] + noise, self.codes(ids), noise

    def loss(self, gen, n=64):
        x, c, noise = self.batch(n, gen)
        return (self.net(x, c) - noise).square().mean()

    def fit(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(self.gen).backward()
            self.optimizer.step()
            self.ema.step(self.net.parameters())

    @torch.no_grad()
    def validate(self):
        return self.loss(torch.Generator().manual_seed(11), n=2048).item()


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    start = trainer.validate()
    trainer.fit(1500)
    live = trainer.validate()
    trainer.ema.store(trainer.net.parameters())
    trainer.ema.copy_to(trainer.net.parameters())
    print(f"validation loss: start {start:.3f}, network {live:.3f}, averaged {trainer.validate():.3f}")


main()
