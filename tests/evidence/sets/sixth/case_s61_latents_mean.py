"""
title: the statistics of a video autoencoder's latents are a float32 tensor, undoing them widens what is decoded
expect: collision
needs: diffusers
fix_at: 31, 62

After https://github.com/Wan-Video/Wan2.1/issues/307, https://github.com/madebyollin/taehv/issues/22 and https://github.com/huggingface/diffusers/pull/11533.
Right: the statistics take the latents' dtype.
"""
import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler
from diffusers.utils import logging
from torch import nn

logging.set_verbosity_error()
torch.manual_seed(612)


class LatentScale:
    """Channel statistics, as lists in the autoencoder's configuration."""

    def __init__(self, mean=(-0.75, 0.11, 0.96, 0.55), std=(2.81, 1.45, 2.33, 1.22)):
        self.mean, self.std = list(mean), list(std)

    def tensors(self):
        pair = torch.tensor([self.mean, self.std])  # BORN
        return pair[:, None, :, None, None].unbind(0)

    def undo(self, latents):
        mean, std = self.tensors()
        return latents * std + mean


class Velocity(nn.Module):
    def __init__(self, channels=4, dim=16):
        super().__init__()
        self.time = nn.Linear(1, dim)
        self.inner, self.outer = nn.Conv2d(channels, dim, 3, padding=1), nn.Conv2d(dim, channels, 3, padding=1)

    def forward(self, x, t):
        return self.outer(torch.tanh(self.inner(x) + self.time(t)[:, :, None, None]))


class Pipeline:
    def __init__(self, dtype):
        self.dtype, self.scale = dtype, LatentScale()
        self.vae = AutoencoderKL(block_out_channels=(16,), norm_num_groups=4, latent_channels=4, down_block_types=("DownEncoderBlock2D",),
                                 up_block_types=("UpDecoderBlock2D",), layers_per_block=1).to(dtype).eval()
        self.model = Velocity().to(dtype).eval()

    @torch.no_grad()
    def __call__(self, frames=2, steps=4):
        scheduler = FlowMatchEulerDiscreteScheduler()
        scheduler.set_timesteps(steps)
        latents = torch.randn(frames, 4, 8, 8).to(self.dtype)
        for t in scheduler.timesteps:
            velocity = self.model(latents, (t / 1000).expand(frames, 1).to(self.dtype))
            latents = scheduler.step(velocity, t, latents).prev_sample
        return self.decode(latents)

    def decode(self, latents):
        latents = self.scale.undo(latents)
        return torch.stack([self.vae.decode(frame[None]).sample[0] for frame in latents])  # COLLIDES


video = Pipeline(torch.bfloat16)()
print(tuple(video.shape), round(video.float().std().item(), 3))
