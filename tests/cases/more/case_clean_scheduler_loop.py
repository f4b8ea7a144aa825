"""
title: a half denoising loop with a library scheduler and guidance
expect: clean
needs: diffusers

The schedule is float32 and the scheduler computes its step in float32; both are its own affair, as it returns the
dtype it was given. Noise is drawn with a generator in the dtype of the network.
"""
import torch
from diffusers import EulerDiscreteScheduler, UNet2DConditionModel

DTYPE = torch.float16


def network():
    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=8, norm_num_groups=4,
    ).to(DTYPE).eval()


@torch.inference_mode()
def sample(unet, prompt, steps, guidance, generator):
    scheduler = EulerDiscreteScheduler()
    scheduler.set_timesteps(steps)
    latents = torch.randn(1, 4, 8, 8, generator=generator, dtype=DTYPE) * scheduler.init_noise_sigma
    for timestep in scheduler.timesteps:
        doubled = scheduler.scale_model_input(torch.cat([latents, latents]), timestep)
        plain, steered = unet(doubled, timestep, encoder_hidden_states=prompt).sample.chunk(2)
        latents = scheduler.step(plain + guidance * (steered - plain), timestep, latents).prev_sample
    return latents


generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)
latents = sample(network(), torch.randn(2, 5, 16, generator=generator, dtype=DTYPE), steps=3, guidance=2.0, generator=generator)
print(latents.dtype, latents.isfinite().all().item())
