"""
title: guidance-scale embedding of a latent consistency pipeline stays float32 in front of a float16 UNet
expect: collision
thread: https://github.com/luosiallen/latent-consistency-model/issues/46

Expectation, written first: the pipeline runs in float16. get_w_embedding has dtype=torch.float32 for default and its
caller only moves the result to the device, so timestep_cond is float32 when the UNet's time embedding multiplies it
with the half weights of cond_proj. The embedding must be made or cast in the dtype of the latents.
"""
import torch
from diffusers import AutoencoderKL, DiffusionPipeline, LCMScheduler, UNet2DConditionModel


class LatentConsistencyModelPipeline(DiffusionPipeline):
    def __init__(self, vae, unet, scheduler):
        super().__init__()
        self.register_modules(vae=vae, unet=unet, scheduler=scheduler)

    def prepare_latents(self, batch_size, num_channels_latents, height, width, dtype, device):
        latents = torch.randn((batch_size, num_channels_latents, height // 2, width // 2), dtype=dtype).to(device)
        return latents * self.scheduler.init_noise_sigma

    def get_w_embedding(self, w, embedding_dim=512, dtype=torch.float32):  # BORN
        w = w * 1000.0
        half_dim = embedding_dim // 2
        emb = torch.log(torch.tensor(10000.0)) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, dtype=dtype) * -emb)
        emb = w.to(dtype)[:, None] * emb[None, :]
        return torch.cat([torch.sin(emb), torch.cos(emb)], dim=1)  # BORN

    @torch.no_grad()
    def __call__(self, prompt_embeds, height=32, width=32, guidance_scale=7.5, num_inference_steps=4):
        device = self._execution_device
        batch_size = prompt_embeds.shape[0]
        self.scheduler.set_timesteps(num_inference_steps, device)
        channels = self.unet.config.in_channels
        latents = self.prepare_latents(batch_size, channels, height, width, prompt_embeds.dtype, device)

        w = torch.tensor(guidance_scale).repeat(batch_size)
        w_embedding = self.get_w_embedding(w, embedding_dim=16).to(device)  # BORN

        for t in self.scheduler.timesteps:
            ts = torch.full((batch_size,), int(t), device=device, dtype=torch.long)
            latents = latents.to(prompt_embeds.dtype)
            pred = self.unet(latents, ts, timestep_cond=w_embedding, encoder_hidden_states=prompt_embeds).sample  # COLLIDES
            latents, denoised = self.scheduler.step(pred, t, latents, return_dict=False)
        denoised = denoised.to(prompt_embeds.dtype)
        return self.vae.decode(denoised / self.vae.config.scaling_factor).sample


def build_pipeline():
    unet = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        cross_attention_dim=16,
        attention_head_dim=4,
        time_cond_proj_dim=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    vae = AutoencoderKL(
        block_out_channels=(16, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
    )
    return LatentConsistencyModelPipeline(vae, unet, LCMScheduler(beta_schedule="scaled_linear"))


if __name__ == "__main__":
    torch.manual_seed(0)
    pipe = build_pipeline()
    pipe.set_progress_bar_config(disable=True)
    pipe.to(torch.float16)
    prompt_embeds = torch.randn(1, 7, 16, dtype=torch.float16)
    images = pipe(prompt_embeds, guidance_scale=8.0, num_inference_steps=4)
    print(images.shape, images.dtype)
