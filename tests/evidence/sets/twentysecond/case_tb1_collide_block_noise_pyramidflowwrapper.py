"""
title: sampling correlated block noise in half precision on the CPU fails with "cholesky_cpu" not implemented for 'Half'
expect: collision
thread: https://github.com/kijai/ComfyUI-PyramidFlowWrapper/issues/48
fix_at: 36

Expectation, written first: the sampler is created in float16 and builds the 4x4 block covariance in its own dtype. The
MultivariateNormal needs a Cholesky factor, for which there is no half kernel on the CPU, so the constructor raises.
"""
import torch
from torch import nn
from torch.distributions import MultivariateNormal


class FlowTransformer(nn.Module):
    def __init__(self, channels=4, hidden=32):
        super().__init__()
        self.proj_in = nn.Linear(channels, hidden)
        self.proj_out = nn.Linear(hidden, channels)

    def forward(self, sample, timestep):
        hidden = sample.permute(0, 2, 3, 4, 1)
        hidden = torch.nn.functional.silu(self.proj_in(hidden) + timestep)
        return self.proj_out(hidden).permute(0, 4, 1, 2, 3)


class PyramidSampler:
    def __init__(self, dit, dtype, gamma=0.3, stages=(1, 2)):
        self.dit = dit.to(dtype).eval()
        self.dtype = dtype
        self.gamma = gamma
        self.stages = stages

    def sample_block_noise(self, bs, ch, temp, height, width):
        gamma = self.gamma
        loc = torch.zeros(4, dtype=self.dtype)
        cov = torch.eye(4, dtype=self.dtype) * (1 + gamma) - torch.ones(4, 4, dtype=self.dtype) * gamma  # BORN
        dist = MultivariateNormal(loc, cov)  # BORN COLLIDES
        block_number = bs * ch * temp * (height // 2) * (width // 2)
        noise = dist.sample((block_number,)).to(self.dtype)
        noise = noise.view(bs, ch, temp, height // 2, width // 2, 2, 2)
        return noise.permute(0, 1, 2, 3, 5, 4, 6).reshape(bs, ch, temp, height, width)

    @torch.no_grad()
    def generate(self, latents, num_steps=3):
        for i_s, scale in enumerate(self.stages):
            if i_s > 0:
                bs, ch, temp, height, width = latents.shape
                latents = latents.repeat_interleave(2, dim=3).repeat_interleave(2, dim=4)
                noise = self.sample_block_noise(bs, ch, temp, height * 2, width * 2)
                alpha = 1 / (2 ** 0.5)
                latents = alpha * latents + (1 - alpha) * noise
            for step in range(num_steps):
                t = 1.0 - step / num_steps
                velocity = self.dit(latents, t)
                latents = latents + velocity / num_steps
        return latents


def main():
    torch.manual_seed(0)
    sampler = PyramidSampler(FlowTransformer(), dtype=torch.float16)  # BORN
    latents = torch.randn(1, 4, 1, 8, 8).to(sampler.dtype)
    video = sampler.generate(latents)
    print("latents", tuple(video.shape), f"std {video.float().std().item():.4f}")


if __name__ == "__main__":
    main()
