"""
title: SDXL LoRA script keeps the VAE in float32 but sends it float16 pixels
expect: collision
thread: https://github.com/huggingface/diffusers/issues/4478
fix_at: 60

Expectation, written first: weight_dtype is float16 from the mixed precision setting. The VAE is moved in float32 since
no fp16-safe VAE path was given, yet the step casts the pixel values to weight_dtype before vae.encode, so the first
convolution gets a half input with a float bias. The pixels should follow the VAE's dtype.
"""
import argparse

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from peft import LoraConfig


def parse_args(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", default="fp16")
    parser.add_argument("--pretrained_vae_model_name_or_path", default=None)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--max_train_steps", type=int, default=2)
    return parser.parse_args(argv)


def load_models():
    vae = AutoencoderKL(
        block_out_channels=(16, 16), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4, norm_num_groups=8, force_upcast=True,
    )
    unet = UNet2DConditionModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    return vae, unet, DDPMScheduler(num_train_timesteps=100)


def collate_fn(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    prompt_embeds = torch.stack([example["prompt_embeds"] for example in examples])
    return {"pixel_values": pixel_values, "prompt_embeds": prompt_embeds}


def main(args):
    torch.manual_seed(0)
    vae, unet, noise_scheduler = load_models()
    vae.requires_grad_(False)
    unet.requires_grad_(False)

    weight_dtype = torch.float32
    if args.mixed_precision == "fp16":
        weight_dtype = torch.float16

    unet.to(dtype=weight_dtype)
    if args.pretrained_vae_model_name_or_path is None:
        vae.to(dtype=torch.float32)
    else:
        vae.to(dtype=weight_dtype)

    unet.add_adapter(LoraConfig(r=args.rank, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    params = [p for p in unet.parameters() if p.requires_grad]
    for p in params:
        p.data = p.data.float()
    optimizer = torch.optim.AdamW(params, lr=args.learning_rate)

    dataset = [{"pixel_values": torch.rand(3, 32, 32) * 2 - 1, "prompt_embeds": torch.randn(7, 16)} for _ in range(4)]
    loader = torch.utils.data.DataLoader(dataset, batch_size=2, collate_fn=collate_fn)
    for step, batch in enumerate(loader):
        pixel_values = batch["pixel_values"].to(dtype=weight_dtype)  # BORN
        model_input = vae.encode(pixel_values).latent_dist.sample()  # BORN COLLIDES
        model_input = (model_input * vae.config.scaling_factor).to(weight_dtype)
        noise = torch.randn_like(model_input)
        timesteps = torch.randint(0, 100, (model_input.shape[0],))
        noisy = noise_scheduler.add_noise(model_input, noise, timesteps)
        with torch.autocast("cpu", dtype=weight_dtype):
            pred = unet(noisy, timesteps, batch["prompt_embeds"].to(weight_dtype)).sample
        loss = F.mse_loss(pred.float(), noise.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


if __name__ == "__main__":
    main(parse_args([]))
