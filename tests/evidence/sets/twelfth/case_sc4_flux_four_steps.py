"""
title: a four-step sampler hands its timesteps to a Flux transformer in bf16
expect: clean
thread: https://github.com/huggingface/diffusers/issues/9405
measured: equal True, spread of the latents 1.276

Expectation, written first: the timestep is divided by a thousand before the cast and the schedule is 1, 3/4, 1/2, 1/4;
bf16 holds these exactly and the latents are those of float32 timesteps to the last bit.
"""
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel


def build_transformer():
    torch.manual_seed(0)
    return FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=False,
    ).eval()


class PromptCache:
    def __init__(self, prompts, seed=2):
        g = torch.Generator().manual_seed(seed)
        self.table = {p: (torch.randn(1, 6, 16, generator=g), torch.randn(1, 16, generator=g)) for p in prompts}

    def __getitem__(self, prompt):
        return self.table[prompt]


class SchnellPipeline:
    def __init__(self, transformer, timestep_dtype):
        self.transformer, self.timestep_dtype = transformer, timestep_dtype
        self.scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=1.0)

    @staticmethod
    def image_ids(side):
        ids = torch.zeros(side, side, 3)
        ids[..., 1] = torch.arange(side)[:, None]
        ids[..., 2] = torch.arange(side)[None]
        return ids.view(-1, 3)

    @torch.no_grad()
    def __call__(self, prompt, cache, side=6, steps=4, seed=1):
        embeds, pooled = cache[prompt]
        latents = torch.randn(1, side * side, 4, generator=torch.Generator().manual_seed(seed))
        sigmas = torch.linspace(1.0, 1 / steps, steps).tolist()
        self.scheduler.set_timesteps(sigmas=sigmas)
        for t in self.scheduler.timesteps:
            timestep = (t.expand(latents.shape[0]) / 1000).to(self.timestep_dtype)
            velocity = self.transformer(
                hidden_states=latents, timestep=timestep, encoder_hidden_states=embeds, pooled_projections=pooled,
                txt_ids=torch.zeros(6, 3), img_ids=self.image_ids(side), return_dict=False,
            )[0]
            latents = self.scheduler.step(velocity, t, latents, return_dict=False)[0]
        return latents


prompts = ("a lighthouse", "a cup of tea")
transformer, cache = build_transformer(), PromptCache(prompts)
ours = torch.cat([SchnellPipeline(transformer, torch.bfloat16)(p, cache) for p in prompts])
wide = torch.cat([SchnellPipeline(transformer, torch.float32)(p, cache) for p in prompts])
print(f"equal {torch.equal(ours, wide)}, spread of the latents {ours.std().item():.3f}")
