"""
title: latent consistency pipeline in half precision: the guidance-scale embedding stays in fp32
expect: collision
thread: https://github.com/luosiallen/latent-consistency-model/issues/46
fix_at: 38, 57

Expectation, written first: get_w_embedding takes dtype=torch.float32 by default and the pipeline never passes the UNet's dtype. The
half-precision UNet projects that timestep condition with its own cond_proj, whose weight is bfloat16, and the matmul raises deep in
diffusers' embeddings.
"""
import torch
from diffusers import LCMScheduler, UNet2DConditionModel

def build_unet():
    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16),
        norm_num_groups=4, cross_attention_dim=12, attention_head_dim=4, time_cond_proj_dim=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))

class LatentConsistencyModelPipeline:
    def __init__(self, unet, scheduler):
        self.unet, self.scheduler = unet, scheduler

    def to(self, dtype):
        self.unet.to(dtype)
        return self

    def prepare_latents(self, batch_size, height, width, dtype, generator):
        shape = (batch_size, self.unet.config.in_channels, height, width)
        latents = torch.randn(shape, generator=generator).to(dtype)
        return latents * self.scheduler.init_noise_sigma

    def get_w_embedding(self, w, embedding_dim=512, dtype=torch.float32):  # BORN
        w = w * 1000.0
        half_dim = embedding_dim // 2
        emb = torch.log(torch.tensor(10000.0)) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, dtype=dtype) * -emb)
        emb = w.to(dtype=dtype)[:, None] * emb[None, :]
        emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=1)
        if embedding_dim % 2 == 1:
            emb = torch.nn.functional.pad(emb, (0, 1))
        assert emb.shape == (w.shape[0], embedding_dim)
        return emb  # BORN

    @torch.no_grad()
    def __call__(self, prompt_embeds, height=8, width=8, guidance_scale=7.5, num_inference_steps=4, generator=None):
        batch_size = prompt_embeds.shape[0]
        prompt_embeds = prompt_embeds.to(dtype=self.unet.dtype)
        self.scheduler.set_timesteps(num_inference_steps, original_inference_steps=50)
        latents = self.prepare_latents(batch_size, height, width, prompt_embeds.dtype, generator)
        w = torch.tensor(guidance_scale - 1).repeat(batch_size)
        w_embedding = self.get_w_embedding(w, embedding_dim=self.unet.config.time_cond_proj_dim)  # BORN
        for t in self.scheduler.timesteps:
            model_pred = self.unet(  # COLLIDES
                latents,
                torch.full((batch_size,), int(t), dtype=torch.long),
                timestep_cond=w_embedding,
                encoder_hidden_states=prompt_embeds,
                return_dict=False,
            )[0]
            latents, denoised = self.scheduler.step(model_pred, t, latents, generator=generator, return_dict=False)
        return denoised

class PromptEncoder:
    def __init__(self, dim, seed=0):
        self.table = torch.randn(64, dim, generator=torch.Generator().manual_seed(seed))

    def __call__(self, prompts, length=6):
        ids = torch.tensor([[ord(c) % 64 for c in p.ljust(length)[:length]] for p in prompts])
        return self.table[ids]

def main():
    torch.manual_seed(0)
    scheduler = LCMScheduler(num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    pipe = LatentConsistencyModelPipeline(build_unet().eval(), scheduler).to(torch.bfloat16)
    prompts = ["a photo of a cat", "sunset over hills"]
    image = pipe(PromptEncoder(12)(prompts), generator=torch.Generator().manual_seed(1))
    print(image.shape, image.dtype, bool(image.isfinite().all()))

if __name__ == "__main__":
    main()
