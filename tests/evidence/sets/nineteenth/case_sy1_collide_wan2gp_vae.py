"""
title: Z-Image generation stops in the VAE decode: Input type BFloat16 and bias type Half should be the same
expect: collision
thread: https://github.com/deepbeepmeep/Wan2GP/pull/2095
fix_at: 54, 61, 70 (a cast there; the setting's reading; the call of the pipeline)

Expectation, written first: at the end of sampling the latents are cast to the transformer's dtype, bfloat16; the VAE is loaded in float16 by
the server's vae_precision setting. The decoder's first convolution refuses the mixed pair. The latents must be cast to the VAE's own dtype at
the decode boundary.
"""
import torch
import torch.nn as nn
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler

server_config = {"vae_precision": "16", "transformer_dtype_policy": "bf16"}


class TinyZTransformer(nn.Module):
    def __init__(self, channels=4, dim=16, text_dim=12):
        super().__init__()
        self.x_embedder = nn.Linear(channels, dim)
        self.cap_embedder = nn.Linear(text_dim, dim)
        self.t_embedder = nn.Linear(1, dim)
        self.block = nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True)
        self.final_layer = nn.Linear(dim, channels)

    def forward(self, latents, timestep, cap_feats):
        b, c, h, w = latents.shape
        x = self.x_embedder(latents.flatten(2).transpose(1, 2))
        x = x + self.t_embedder(timestep[:, None, None])
        x = self.block(torch.cat([x, self.cap_embedder(cap_feats)], dim=1))[:, : h * w]
        return self.final_layer(x).transpose(1, 2).reshape(b, c, h, w)


class ZImagePipeline:
    def __init__(self, transformer, vae, scheduler):
        self.transformer, self.vae, self.scheduler = transformer, vae, scheduler

    @torch.no_grad()
    def __call__(self, prompt_embeds, num_inference_steps=4, guidance_scale=2.0, output_type="pt"):
        dtype = next(self.transformer.parameters()).dtype
        prompt_embeds = prompt_embeds.to(dtype)
        latents = torch.randn(1, 4, 8, 8, dtype=torch.float32)
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps:
            timestep = (1000 - t.expand(latents.shape[0])) / 1000
            cond = self.transformer(latents.to(dtype), timestep.to(dtype), prompt_embeds).float()
            uncond = self.transformer(latents.to(dtype), timestep.to(dtype), torch.zeros_like(prompt_embeds)).float()
            noise_pred = -(uncond + guidance_scale * (cond - uncond))
            latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]
        if output_type == "latent":
            return latents
        latents = latents.to(dtype)  # BORN
        latents = (latents / self.vae.config.scaling_factor) + self.vae.config.shift_factor
        image = self.vae.decode(latents, return_dict=False)[0]  # BORN COLLIDES
        return (image.float() / 2 + 0.5).clamp(0, 1)


def load_models():
    transformer_dtype = torch.bfloat16 if server_config["transformer_dtype_policy"] == "bf16" else torch.float16
    VAE_dtype = torch.float16 if server_config.get("vae_precision", "16") == "16" else torch.float
    transformer = TinyZTransformer().to(transformer_dtype).eval()
    vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4, sample_size=16, shift_factor=0.1)
    return ZImagePipeline(transformer, vae.to(VAE_dtype).eval(), FlowMatchEulerDiscreteScheduler(shift=3.0))


def main():
    torch.manual_seed(2095)
    pipe = load_models()
    images = pipe(torch.randn(1, 5, 12))
    print(images.shape, images.mean().item())


if __name__ == "__main__":
    main()
