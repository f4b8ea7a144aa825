"""
title: planner sampler builds its shifted sigma grid in the latents' bf16
expect: silent:precision-loss|downcast
thread: https://github.com/Comfy-Org/ComfyUI/pull/16001
measured: distance to the data: 23.7 %
widened: distance to the data: 0.0 %
fix_at: 54, 53

Expectation, written first: 100 shifted sigmas in bf16 contain many equal neighbours,
the lookup by timestep then finds the first of them and steps with the wrong delta, so
the trajectory of a constant velocity does not arrive at the data.
"""
import torch


class FlowScheduler:
    def __init__(self, num_train_timesteps=1000, shift=5.0):
        self.num_train_timesteps, self.shift = num_train_timesteps, shift

    def set_timesteps(self, count, dtype):
        sigmas = torch.linspace(1.0, 0.0, count + 1, dtype=dtype)  # BORN
        sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        self.sigmas = sigmas
        self.timesteps = sigmas[:-1] * self.num_train_timesteps

    def step(self, velocity, timestep, sample):
        i = (self.timesteps - timestep).abs().argmin()
        delta = self.sigmas[i + 1] - self.sigmas[i]
        return sample + delta.float() * velocity


class ConstantFlow:
    """Velocity of the straight path between noise and data, as a perfect model gives it."""

    def __init__(self, noise, data):
        self.v = noise - data

    def __call__(self, x, t):
        return self.v


def sample(model, scheduler, noise, steps, dtype):
    scheduler.set_timesteps(steps, dtype)
    x = noise.clone()
    for t in scheduler.timesteps:
        x = scheduler.step(model(x, t), t, x)
    return x


if __name__ == "__main__":
    torch.manual_seed(0)
    data, noise = torch.randn(4, 8, 8), torch.randn(4, 8, 8)
    z = noise.to(torch.bfloat16)
    out = sample(ConstantFlow(noise, data), FlowScheduler(), noise, steps=100, dtype=z.dtype)
    err = (out - data).abs().mean() / data.abs().mean()
    print(f"distance to the data: {100 * err.item():.1f} %")
