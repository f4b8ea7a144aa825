"""
title: a walk between two latents in numpy: a step of np.linspace is a float64 scalar, which numpy 2 lets win
expect: collision
needs: diffusers
fix_at: 33, 34

After https://github.com/numpy/numpy/issues/25098 and https://github.com/numpy/numpy/pull/21103: under NEP 50 a float64 scalar times a float32 array
is float64 (numpy 1 kept float32).
Right: come back to float32 when the walk returns to torch.
"""
import numpy as np
import torch
from diffusers import DDIMScheduler, UNet2DModel

torch.manual_seed(105)


def slerp(t, start, end):
    a, b = start.numpy().ravel(), end.numpy().ravel()
    cosine = np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b))
    angle = np.arccos(np.clip(cosine, -0.9995, 0.9995))
    left, right = np.sin((1 - t) * angle) / np.sin(angle), np.sin(t * angle) / np.sin(angle)
    return torch.from_numpy(left * a + right * b).view_as(start)  # BORN


class Walk:
    def __init__(self, shape, seeds, frames):
        self.keys = [torch.randn(shape, generator=torch.Generator().manual_seed(s)) for s in seeds]
        self.frames = frames

    def __iter__(self):
        for start, end in zip(self.keys, self.keys[1:]):
            for t in np.linspace(0, 1, self.frames, endpoint=False):
                yield slerp(t, start, end)


class Animator:
    def __init__(self, unet, steps):
        self.unet, self.scheduler = unet.eval(), DDIMScheduler(num_train_timesteps=50)
        self.scheduler.set_timesteps(steps)

    @torch.no_grad()
    def render(self, latent):
        x = latent * self.scheduler.init_noise_sigma
        for t in self.scheduler.timesteps:
            noise = self.unet(self.scheduler.scale_model_input(x, t), t).sample  # COLLIDES
            x = self.scheduler.step(noise, t, x).prev_sample
        return ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


unet = UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
                   down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"))
animator = Animator(unet, steps=3)
frames = [animator.render(latent) for latent in Walk((1, 3, 8, 8), seeds=(1, 2, 3), frames=2)]
print(len(frames), [int(f.float().mean()) for f in frames])
