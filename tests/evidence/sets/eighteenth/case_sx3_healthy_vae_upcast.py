"""
title: float16 VAE is upcast to float32 for decoding and put back afterwards
expect: clean
thread: https://github.com/vladmandic/sdnext/pull/1874
measured: latents torch.float16, weights unchanged: True, repeatable: True, (1, 16, 16, 3)
suspect: 63 lossless

Expectation, written first: latents come in float16 from the sampler. When the VAE is float16 and asks for force_upcast,
its weights and the latents are widened to float32 for the decode and the weights are set back to float16; they were
float16 values before, so the way up and down changes none of them. The image is handed on as float32.
"""
import numpy as np
import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler
from types import SimpleNamespace

opts = SimpleNamespace(diffusers_vae_upcast="default", cuda_dtype="FP16")
devices = SimpleNamespace(dtype={"FP16": torch.float16, "FP32": torch.float32}[opts.cuda_dtype])


def load_vae():
    vae = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
        force_upcast=True,
        scaling_factor=0.13025,
    ).eval()
    if opts.diffusers_vae_upcast != "default":
        vae.register_to_config(force_upcast=opts.diffusers_vae_upcast == "true")
    return vae.to(devices.dtype)


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x, t):
        return self.net(x) * 0.1 + x * 0.2


@torch.no_grad()
def sample(unet, scheduler, steps, generator):
    scheduler.set_timesteps(steps)
    latents = torch.randn(1, 4, 8, 8, generator=generator).to(devices.dtype) * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        pred = unet(scheduler.scale_model_input(latents, t), t)
        latents = scheduler.step(pred, t, latents, generator=generator).prev_sample
    return latents


@torch.no_grad()
def full_vae_decode(latents, vae):
    needs_upcast = vae.dtype == torch.float16 and getattr(vae.config, "force_upcast", False)
    if needs_upcast:
        vae.to(dtype=torch.float32)
        latents = latents.to(next(iter(vae.post_quant_conv.parameters())).dtype)
    decoded = vae.decode(latents / vae.config.scaling_factor, return_dict=False)[0]
    if needs_upcast:
        vae.to(dtype=torch.float16)
    return decoded


def to_pil_array(decoded):
    image = (decoded.float() / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy()
    return (image * 255).round().astype(np.uint8)


def main():
    torch.manual_seed(0)
    vae, unet = load_vae(), Denoiser().to(devices.dtype).eval()
    before = {k: v.clone() for k, v in vae.state_dict().items()}
    latents = sample(unet, EulerDiscreteScheduler(), 6, torch.Generator().manual_seed(3))
    images = [to_pil_array(full_vae_decode(latents, vae)) for _ in range(2)]
    same = all(torch.equal(before[k], v) for k, v in vae.state_dict().items())
    print(f"latents {latents.dtype}, weights unchanged: {same}, repeatable: {np.array_equal(*images)}, {images[0].shape}")


if __name__ == "__main__":
    main()
