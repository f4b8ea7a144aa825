"""
title: the guidance embedding of a latent consistency model is made in float32, the student is bfloat16
expect: collision
needs: diffusers
fix_at: 22, 38

After https://github.com/luosiallen/latent-consistency-model/issues/81 and https://github.com/huggingface/diffusers/issues/4860.
Right: the table is made in float32, the embedding is cast to the student's dtype when it is handed out.
"""
import math

import torch
import torch.nn.functional as F
from diffusers import UNet2DConditionModel

torch.manual_seed(102)


def guidance_embedding(scales, dim=16, dtype=torch.float32):
    steps = torch.exp(torch.arange(dim // 2, dtype=dtype) * (-math.log(10000.0) / (dim // 2 - 1)))  # BORN
    angle = scales[:, None] * 1000 * steps[None]
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def student(dtype):
    return UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
                                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                                cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8, time_cond_proj_dim=16).to(dtype)


class GuidedBatch(dict):
    """One batch of cached latents, with the guidance each of them is distilled at."""

    @classmethod
    def draw(cls, size, dtype, scales=(1.5, 4.0, 7.5)):
        picked = torch.tensor([scales[i % len(scales)] for i in range(size)], dtype=dtype)
        return cls(latents=torch.randn(size, 4, 8, 8, dtype=dtype), text=torch.randn(size, 5, 16, dtype=dtype),
                   scales=picked, guidance=guidance_embedding(picked))


def distil_step(model, batch, t):
    out = model(batch["latents"], t, encoder_hidden_states=batch["text"], timestep_cond=batch["guidance"])  # COLLIDES
    target = batch["latents"].float() * (1 + batch["scales"].float()[:, None, None, None] / 10)
    return F.huber_loss(out.sample.float(), target)


def main(dtype=torch.bfloat16):
    model = student(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(2):
        batch = GuidedBatch.draw(3, dtype)
        loss = distil_step(model, batch, torch.tensor([10, 20, 30]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 4))


main()
