"""
title: a trained T2I-Adapter runs in float32, its features go into the frozen bfloat16 UNet as residuals
expect: collision
needs: diffusers
fix_at: 38

After https://github.com/Mikubill/sd-webui-controlnet/issues/419 and https://github.com/huggingface/diffusers/issues/1988.
Right: the adapter stays float32 (it is trained), its features are cast to the UNet's dtype when they leave it.
"""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, T2IAdapter, UNet2DConditionModel

torch.manual_seed(101)


@dataclass
class Conditions:
    text: torch.Tensor
    residuals: list = field(default_factory=list)


def frozen_unet(dtype):
    unet = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
                                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                                cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8)
    return unet.requires_grad_(False).to(dtype)


class Conditioner:
    def __init__(self, adapter, dtype):
        self.adapter, self.dtype = adapter, dtype

    def __call__(self, sketch, text):
        features = self.adapter(sketch)  # BORN
        return Conditions(text.to(self.dtype), features)


def denoise(unet, noisy, t, conditions):
    out = unet(noisy, t, encoder_hidden_states=conditions.text, down_intrablock_additional_residuals=list(conditions.residuals))  # COLLIDES
    return out.sample


def train(steps=2, dtype=torch.bfloat16):
    unet = frozen_unet(dtype)
    adapter = T2IAdapter(in_channels=1, channels=[16, 32], num_res_blocks=1, downscale_factor=2, adapter_type="full_adapter")
    conditioner = Conditioner(adapter, dtype)
    scheduler = DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-3)
    for step in range(steps):
        latents, noise = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8)
        t = torch.randint(0, 50, (2,))
        noisy = scheduler.add_noise(latents, noise, t).to(dtype)
        conditions = conditioner(torch.rand(2, 1, 16, 16), torch.randn(2, 6, 16))
        loss = F.mse_loss(denoise(unet, noisy, t, conditions).float(), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 4))


train()
