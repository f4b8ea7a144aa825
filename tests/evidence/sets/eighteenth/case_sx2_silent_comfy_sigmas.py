"""
title: the planner's sampler repeats steps of its schedule and stops short of a clean latent
expect: silent:precision-loss
thread: https://github.com/Comfy-Org/ComfyUI/pull/16001
measured: steps visited 77 of 100, sigma travelled 0.852 (1), mean of the latent -0.846
widened: steps visited 100 of 100, sigma travelled 1.000 (1), mean of the latent -0.983
innocent: steps visited 77 of 100, sigma travelled 0.852 (1), mean of the latent -0.846
suspect: line 50 harmless (the velocity is rounded to a part in 250)

Expectation, written first: the sigma schedule is built in the planner's bfloat16; near 1 the shifted sigmas are closer
than its steps, neighbours coincide, and the look-up of the current step by argmin returns the first of them, so steps are
taken twice with the wrong length. The velocity computed in bfloat16 is the obvious suspect and costs nothing visible.
"""
import torch
import torch.nn as nn


class FlowScheduler:
    def __init__(self, shift=5.0, num_train_timesteps=1000, sigma_min=0.0, sigma_max=1.0):
        self.shift, self.num_train_timesteps = shift, num_train_timesteps
        self.sigma_min, self.sigma_max = sigma_min, sigma_max

    def set_timesteps(self, count, dtype):
        sigmas = torch.linspace(self.sigma_max, self.sigma_min, count + 1, dtype=dtype)[:-1]  # BORN
        self.sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        self.timesteps = self.sigmas * self.num_train_timesteps

    def step(self, velocity, timestep, sample):
        index = torch.argmin((self.timesteps - timestep).abs())
        last = index + 1 >= len(self.sigmas)
        next_sigma = self.sigma_min if last else self.sigmas[index + 1]
        self.visited.add(int(index))
        self.travelled += float(self.sigmas[index] - next_sigma)
        return sample + velocity * (next_sigma - self.sigmas[index]).float()


class Planner(nn.Module):
    def __init__(self, dim=16, num_steps=100, dtype=torch.bfloat16):
        super().__init__()
        self.net = nn.Linear(dim, dim).to(dtype)
        self.scheduler = FlowScheduler()
        self.num_steps = num_steps
        self.dtype = dtype

    @torch.no_grad()
    def sample(self, z):
        self.scheduler.set_timesteps(self.num_steps, dtype=self.dtype)  # BORN
        self.scheduler.visited, self.scheduler.travelled = set(), 0.0
        for timestep in self.scheduler.timesteps:
            velocity = self.net(z.to(self.dtype)).float()
            z = self.scheduler.step(velocity, timestep, z)
        return z


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    planner = Planner()
    nn.init.zeros_(planner.net.weight)
    nn.init.ones_(planner.net.bias)
    planner.net.weight.data += 0.05 * torch.randn(16, 16).to(torch.bfloat16)
    z = planner.sample(torch.randn(4, 16))
    s = planner.scheduler
    print(f"steps visited {len(s.visited)} of 100, sigma travelled {s.travelled:.3f} (1), mean of the latent {z.mean().item():.3f}")


main()
