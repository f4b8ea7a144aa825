"""
title: a pipeline that upcasts its VAE and casts latents to it at every decode
expect: clean

Looks like vae_second_call; called twice, right both times.
"""
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DModel


class TinyPipeline:
    def __init__(self, unet, vae, scheduler):
        self.unet, self.vae, self.scheduler = unet, vae, scheduler

    @torch.no_grad()
    def __call__(self, seed, steps=2):
        gen = torch.Generator().manual_seed(seed)
        latents = torch.randn(1, 4, 8, 8, generator=gen).to(self.unet.dtype)
        self.scheduler.set_timesteps(steps)
        for t in self.scheduler.timesteps:
            noise = self.unet(latents, t).sample
            latents = self.scheduler.step(noise, t, latents).prev_sample
        if self.vae.dtype != torch.float32 and self.vae.config.force_upcast:
            self.vae.to(dtype=torch.float32)
        latents = latents.to(self.vae.dtype)
        image = self.vae.decode(latents / self.vae.config.scaling_factor).sample
        return (image / 2 + 0.5).clamp(0, 1)


torch.manual_seed(0)
unet = UNet2DModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 8),
                   norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
                   up_block_types=("UpBlock2D", "UpBlock2D"), add_attention=False)
vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4, force_upcast=True,
                    down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",))
pipe = TinyPipeline(unet.to(torch.bfloat16).eval(), vae.to(torch.bfloat16).eval(), DDIMScheduler())
for seed in (1, 2):
    print("image", seed, round(pipe(seed).mean().item(), 4))
