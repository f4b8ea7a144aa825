"""
title: validation latents of a diffusion trainer are decoded by a bfloat16 VAE outside of autocast
expect: collision
thread: https://github.com/bghira/SimpleTuner/issues/356
fix_at: 27, 38, 47, 55, 56, 60, 61, 68

Expectation, written first: the VAE rests in bfloat16; the validation noise is drawn in the default dtype and the
sampler keeps it in float32, the UNet runs under autocast and does not mind, the VAE's first convolution does.
"""
import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DModel


def make_vae():
    return AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
                         up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(8, 16), layers_per_block=1,
                         latent_channels=4, norm_num_groups=4, sample_size=16).eval()


def make_unet():
    return UNet2DModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16),
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"), norm_num_groups=4,
                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)


class StateTracker:
    vae_dtype = torch.bfloat16  # BORN
    weight_dtype = torch.bfloat16


class Sampler:
    def __init__(self, unet, steps=4):
        self.unet, self.scheduler = unet, DDPMScheduler(num_train_timesteps=100)
        self.scheduler.set_timesteps(steps)

    def noise(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        return torch.randn(count, 4, 8, 8, generator=gen)  # BORN

    def __call__(self, count, seed=0):
        latents = self.noise(count, seed)
        gen = torch.Generator().manual_seed(seed + 1)
        for t in self.scheduler.timesteps:
            with torch.autocast("cpu", dtype=StateTracker.weight_dtype):
                pred = self.unet(latents, t).sample
            latents = self.scheduler.step(pred, t, latents, generator=gen).prev_sample
        return latents


class Validation:
    def __init__(self, sampler, vae):
        self.sampler, self.vae = sampler, vae

    def decode(self, latents):
        scaled = latents / self.vae.config.scaling_factor
        return self.vae.decode(scaled).sample  # COLLIDES

    @torch.no_grad()
    def run(self, count=2):
        latents = self.sampler(count)
        images = self.decode(latents)
        return (images.float() / 2 + 0.5).clamp(0, 1)


def main():
    torch.manual_seed(0)
    unet, vae = make_unet(), make_vae()
    vae.requires_grad_(False).to(dtype=StateTracker.vae_dtype)  # BORN
    unet.train()
    images = Validation(Sampler(unet.eval()), vae).run()
    print("images", tuple(images.shape), f"mean {images.mean():.4f}")


if __name__ == "__main__":
    main()
