"""
title: pooled prompt embeddings are normalised in float32, FLUX's time embedder follows their dtype
expect: collision
needs: diffusers
fix_at: 37, 58

After https://github.com/huggingface/diffusers/issues/11050 and https://github.com/kohya-ss/sd-scripts/issues/1489: the time embedding is cast
to the dtype of the pooled projections, so the first Linear that fails never sees the culprit itself.
Right: cast the pooled embedding back after it is normalised.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel

torch.manual_seed(103)


@dataclass
class Prompt:
    tokens: torch.Tensor
    pooled: torch.Tensor
    ids: torch.Tensor


class PromptCache:
    def __init__(self, dim, dtype):
        self.table = torch.randn(64, dim).to(dtype)
        self.entries = {}

    def encode(self, text):
        if text not in self.entries:
            ids = torch.tensor([[sum(map(ord, word)) % 64 for word in text.split()]])
            hidden = self.table[ids]
            pooled = F.normalize(hidden.float().mean(1), dim=-1)  # BORN
            self.entries[text] = Prompt(hidden, pooled, torch.zeros(ids.shape[1], 3))
        return self.entries[text]


def build(dtype):
    return FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
                                  joint_attention_dim=32, pooled_projection_dim=32, guidance_embeds=False, axes_dims_rope=[4, 4, 8]).to(dtype)


def grid(side):
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(-1, 3).float()


@torch.no_grad()
def sample(model, prompt, steps=3, side=4, dtype=torch.bfloat16):
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(steps)
    latents = torch.randn(1, side * side, 4).to(dtype)
    for t in scheduler.timesteps:
        velocity = model(hidden_states=latents, timestep=(t / 1000).expand(1).to(dtype), encoder_hidden_states=prompt.tokens,  # COLLIDES
                         pooled_projections=prompt.pooled, txt_ids=prompt.ids, img_ids=grid(side)).sample
        latents = scheduler.step(velocity, t, latents).prev_sample
    return latents


model = build(torch.bfloat16)
cache = PromptCache(32, torch.bfloat16)
for text in ("a red fox in snow", "two boats"):
    image = sample(model, cache.encode(text))
    print(text, round(image.float().std().item(), 3))
