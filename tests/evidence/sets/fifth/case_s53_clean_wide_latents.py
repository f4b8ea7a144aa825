"""
title: a bfloat16 denoiser inside a sampler whose latents, noise levels and guidance are float32
expect: clean
needs: diffusers

The right way round of https://github.com/huggingface/diffusers/pull/3005 and https://github.com/finegrain-ai/refiners/pull/449.
"""
import torch
from diffusers import EulerDiscreteScheduler, UNet2DConditionModel

torch.manual_seed(308)


def denoiser(dtype):
    return UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
                                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                                cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8).to(dtype).eval()


class Guided:
    def __init__(self, unet, scale):
        self.unet, self.scale = unet, scale

    def __call__(self, latents, t, text):
        both = torch.cat([latents, latents]).to(self.unet.dtype)
        empty, full = self.unet(both, t, encoder_hidden_states=text.to(self.unet.dtype)).sample.float().chunk(2)
        return empty + self.scale * (full - empty)


@torch.no_grad()
def sample(unet, text, steps=20, scale=4.0, seed=3):
    scheduler = EulerDiscreteScheduler(num_train_timesteps=200)
    scheduler.set_timesteps(steps)
    guided = Guided(unet, scale)
    latents = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)) * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        noise = guided(scheduler.scale_model_input(latents, t), t, text)
        latents = scheduler.step(noise, t, latents).prev_sample
    return latents


unet = denoiser(torch.bfloat16)
text = torch.cat([torch.zeros(1, 5, 16), torch.randn(1, 5, 16)])
image = sample(unet, text)
print(image.dtype, "spread", round(image.std().item(), 3), "mean", round(image.mean().item(), 3))
