"""
title: Cosmos sampling state stays in bfloat16, the small scheduler updates are rounded away
expect: silent:lost-update|precision-loss|downcast|round-trip
thread: https://github.com/vllm-project/vllm-omni/pull/7592
measured: rms error 0.675 against a total motion of 1.475 | psnr 24.6 dB
widened: rms error 0.003 against a total motion of 1.475 | psnr 70.7 dB
innocent: rms error 0.675 against a total motion of 1.475 | psnr 24.6 dB
suspect: line 58, the network sees a rounded copy, the state is not touched by it

Expectation, written first: the latents are prepared in the model dtype and the scheduler casts its float32 result back to the dtype of the
sample. With hundreds of steps an update is below half a bfloat16 unit for most latents, they do not move and the clip ends far from
where the velocities lead. Latents in float32 with the transformer still in bfloat16 are right.
"""
import torch
from torch import nn


class Cosmos3Transformer(nn.Module):
    def __init__(self, channels, cond_dim=12):
        super().__init__()
        self.cond = nn.Linear(cond_dim, channels)
        self.x = nn.Linear(channels, channels, bias=False)
        nn.init.normal_(self.x.weight, std=0.01)
        nn.init.normal_(self.cond.weight, std=0.3)

    @property
    def dtype(self):
        return self.cond.weight.dtype

    def forward(self, x, t, cond):
        return self.cond(cond)[:, None] + self.x(x) * t


class FlowUniScheduler:
    def __init__(self, steps, shift=1.0):
        s = torch.linspace(1, 0, steps + 1)
        self.sigmas = shift * s / (1 + (shift - 1) * s)

    def step(self, velocity, i, sample):
        dt = self.sigmas[i + 1] - self.sigmas[i]
        prev = sample.to(torch.float32) + dt * velocity.to(torch.float32)
        return prev.to(sample.dtype)  # BORN


class Cosmos3Pipeline:
    def __init__(self, transformer, scheduler, dtype):
        self.transformer, self.scheduler, self.dtype = transformer, scheduler, dtype

    def prepare_latents(self, shape, seed):
        g = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=g).to(self.dtype)  # BORN

    @torch.no_grad()
    def __call__(self, cond, shape, seed=0):
        latents = self.prepare_latents(shape, seed)  # BORN
        for i in range(len(self.scheduler.sigmas) - 1):
            t = self.scheduler.sigmas[i].to(self.transformer.dtype)
            model_in = latents.to(self.transformer.dtype)
            v = self.transformer(model_in.to(self.transformer.dtype), t, cond.to(self.transformer.dtype))
            latents = self.scheduler.step(v, i, latents)
        return latents.float()


@torch.no_grad()
def reference(transformer, scheduler, cond, shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g).double()
    net = transformer.double()
    for i in range(len(scheduler.sigmas) - 1):
        dt = (scheduler.sigmas[i + 1] - scheduler.sigmas[i]).double()
        x = x + dt * net(x, scheduler.sigmas[i].double(), cond.double())
    return x.float()


torch.manual_seed(1)
net = Cosmos3Transformer(16).to(torch.bfloat16)
sched = FlowUniScheduler(steps=400)
cond = torch.randn(2, 12)
shape = (2, 32, 16)
out = Cosmos3Pipeline(net, sched, torch.bfloat16)(cond, shape)  # BORN
ref = reference(net, sched, cond, shape)
err = (out - ref).pow(2).mean().sqrt()
start = torch.randn(shape, generator=torch.Generator().manual_seed(0))
print("rms error %.3f against a total motion of %.3f" % (err, (ref - start).pow(2).mean().sqrt()))
print("psnr %.1f dB" % (20 * torch.log10((ref.max() - ref.min()) / err)))
