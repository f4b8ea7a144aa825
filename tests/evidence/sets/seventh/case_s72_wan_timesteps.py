"""
title: The video pipeline casts the scheduler's time steps to the model's bfloat16
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/modelscope/DiffSynth-Studio/issues/562
measured: distinct time steps seen by the model = 89 of 100, worst embedding error = 1.602
widened: distinct time steps seen by the model = 100 of 100, worst embedding error = 0.000

Expectation, written first.  With shift 5 most of the hundred time steps lie
between 700 and 1000, where bfloat16 has a step of 4: 988.5 and 987.2 both
become 988.  The cast comes before the sinusoid, whose fastest channel turns by
one radian per unit, so neighbouring denoising steps get the same and a wrong
modulation.  BORN is the cast of the time step in the loop; kept in float32
(the embedding is cast to bfloat16 afterwards) it is right.
"""
import torch
from torch import nn

torch.manual_seed(0)


class FlowMatchScheduler:
    def __init__(self, shift=5.0):
        self.shift = shift

    def set_timesteps(self, steps):
        sigmas = torch.linspace(1.0, 0.0, steps + 1)[:-1]
        self.sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        self.timesteps = self.sigmas * 1000

    def step(self, velocity, index, sample):
        following = self.sigmas[index + 1] if index + 1 < len(self.sigmas) else 0.0
        return sample + velocity * (following - self.sigmas[index])


def sinusoidal_embedding_1d(dim, position):
    freq = 10000.0 ** (-torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    angle = torch.outer(position.to(torch.float64), freq)
    return torch.cat([angle.cos(), angle.sin()], 1)


class TinyDiT(nn.Module):
    def __init__(self, dim=32, freq_dim=64):
        super().__init__()
        self.freq_dim = freq_dim
        self.time_embedding = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, 2 * dim))
        self.inp, self.out = nn.Linear(8, dim), nn.Linear(dim, 8)

    def forward(self, x, timestep):
        emb = sinusoidal_embedding_1d(self.freq_dim, timestep)
        self.last_embedding = emb
        scale, shift = self.time_embedding(emb.to(x.dtype)).chunk(2, -1)
        return self.out(nn.functional.silu(self.inp(x) * (1 + scale) + shift))


@torch.no_grad()
def main(steps=100):
    dtype = torch.bfloat16
    model, scheduler = TinyDiT().to(dtype), FlowMatchScheduler()
    scheduler.set_timesteps(steps)
    latents = torch.randn(12, 8)
    seen, worst = set(), 0.0
    for index, t in enumerate(scheduler.timesteps):
        timestep = t.unsqueeze(0).to(torch.bfloat16)  # BORN
        velocity = model(latents.to(dtype), timestep).float()
        seen.add(timestep.item())
        worst = max(worst, (model.last_embedding - sinusoidal_embedding_1d(64, t[None])).abs().max().item())
        latents = scheduler.step(velocity, index, latents)
    print("latents std", round(latents.std().item(), 3))
    print(f"distinct time steps seen by the model = {len(seen)} of {steps}, worst embedding error = {worst:.3f}")


if __name__ == "__main__":
    main()
