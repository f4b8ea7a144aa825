"""
title: full fine-tuning of the UNet with fp16 AMP stops at "Attempting to unscale FP16 gradients"
expect: collision
thread: https://github.com/yk7333/d3po/issues/6
fix_at: 44 (where the inference dtype is chosen)

Expectation, written first: the training script casts VAE, text encoder and UNet alike to the inference dtype. With LoRA off the UNet's own
weights are what the optimizer trains, so parameters and gradients are float16, and GradScaler.unscale_ refuses them. The line that moves the
UNet must keep it in float32 when it is trained in full; the frozen VAE is right in half.
"""
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel

config = SimpleNamespace(
    mixed_precision="fp16",
    use_lora=False,
    train=SimpleNamespace(learning_rate=3e-5, batch_size=2, max_grad_norm=1.0, steps=2),
    seed=42,
)


def build_pipeline():
    unet = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, attention_head_dim=4, norm_num_groups=4,
    )
    vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4, sample_size=16)
    scheduler = DDPMScheduler(num_train_timesteps=50)
    return SimpleNamespace(unet=unet, vae=vae, scheduler=scheduler)


def main():
    torch.manual_seed(config.seed)
    device = torch.device("cpu")
    pipeline = build_pipeline()
    pipeline.vae.requires_grad_(False)

    inference_dtype = torch.float32
    if config.mixed_precision == "fp16":
        inference_dtype = torch.float16
    elif config.mixed_precision == "bf16":
        inference_dtype = torch.bfloat16

    pipeline.vae.to(device, dtype=inference_dtype)
    pipeline.unet.to(device, dtype=inference_dtype)  # BORN

    trainable = [p for p in pipeline.unet.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=config.train.learning_rate, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cpu", enabled=config.mixed_precision == "fp16")

    prompt_embeds = torch.randn(config.train.batch_size, 6, 16, dtype=inference_dtype)
    for step in range(config.train.steps):
        with torch.no_grad():
            pixels = torch.rand(config.train.batch_size, 3, 8, 8, dtype=inference_dtype) * 2 - 1
            latents = pipeline.vae.encode(pixels).latent_dist.sample() * pipeline.vae.config.scaling_factor
        noise = torch.randn_like(latents)
        t = torch.randint(0, 50, (config.train.batch_size,))
        noisy = pipeline.scheduler.add_noise(latents, noise, t)
        with torch.autocast("cpu", dtype=torch.float16, enabled=config.mixed_precision == "fp16"):
            pred = pipeline.unet(noisy, t, prompt_embeds).sample
            loss = F.mse_loss(pred.float(), noise.float())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # COLLIDES
        torch.nn.utils.clip_grad_norm_(trainable, config.train.max_grad_norm)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
