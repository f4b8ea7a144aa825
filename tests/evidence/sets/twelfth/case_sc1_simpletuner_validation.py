"""
title: the validation images of an SDXL-like trainer are decoded from float32 latents by a bfloat16 VAE
expect: collision
thread: https://github.com/bghira/SimpleTuner/issues/356
fix_at: 28, 46, 55, 63, 64, 67, 68, 75, 76, 77

Expectation, written first: the embed cache hands its prompts out in float32, the latents take the prompts' dtype,
the denoising loop runs under autocast and does not mind; the decoder's first convolution, outside of it, refuses.
"""
from argparse import Namespace

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel

WEIGHT_DTYPES = {"bf16": torch.bfloat16, "no": torch.float32}


class TextEmbeddingCache:
    def __init__(self, dim=16, tokens=6):
        self.dim, self.tokens, self.store = dim, tokens, {}

    def compute(self, prompt, encoder):
        ids = torch.tensor([[hash_id(w) for w in prompt.split()[: self.tokens]]])
        ids = torch.nn.functional.pad(ids, (0, self.tokens - ids.shape[1]))
        self.store[prompt] = encoder(ids).detach().to("cpu")

    def load(self, prompt):
        return self.store[prompt].to(torch.float32)  # BORN


def hash_id(word):
    return sum(map(ord, word)) % 97


def load_models(args):
    dtype = WEIGHT_DTYPES[args.mixed_precision]
    vae = AutoencoderKL(
        block_out_channels=(16, 32), layers_per_block=1, latent_channels=4, norm_num_groups=8, sample_size=32,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=16,
        attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    vae.to(dtype=dtype).requires_grad_(False)
    return vae, unet, torch.nn.Embedding(97, 16).to(dtype)


class Validation:
    def __init__(self, args, vae, unet, embeds, scheduler):
        self.args, self.vae, self.unet, self.embeds, self.scheduler = args, vae, unet, embeds, scheduler

    def prepare_latents(self, dtype, seed):
        noise = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        return noise * self.scheduler.init_noise_sigma

    def denoise(self, latents, prompt_embeds):
        self.scheduler.set_timesteps(self.args.validation_steps)
        for t in self.scheduler.timesteps:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.mixed_precision == "bf16"):
                noise_pred = self.unet(latents, t, encoder_hidden_states=prompt_embeds).sample
            latents = self.scheduler.step(noise_pred, t, latents).prev_sample
        return latents

    def decode(self, latents):
        latents = latents / self.vae.config.scaling_factor
        image = self.vae.decode(latents).sample  # COLLIDES
        return (image.float() / 2 + 0.5).clamp(0, 1)

    @torch.no_grad()
    def run(self, prompts):
        images = {}
        for i, prompt in enumerate(prompts):
            embeds = self.embeds.load(prompt)
            latents = self.prepare_latents(embeds.dtype, seed=self.args.seed + i)
            images[prompt] = self.decode(self.denoise(latents, embeds))
        return images


def main():
    args = Namespace(mixed_precision="bf16", validation_steps=4, seed=42)
    torch.manual_seed(args.seed)
    vae, unet, text_encoder = load_models(args)
    cache = TextEmbeddingCache()
    prompts = ["a lighthouse in fog", "portrait of a fox"]
    for p in prompts:
        cache.compute(p, text_encoder)
    validation = Validation(args, vae, unet, cache, DDIMScheduler(num_train_timesteps=1000))
    for prompt, image in validation.run(prompts).items():
        print(prompt, tuple(image.shape), round(image.mean().item(), 3))


main()
