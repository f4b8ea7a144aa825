"""
title: the VAE is kept in float32 and the pixels are cast to the weights' dtype all the same
expect: collision
needs: diffusers, peft, accelerate

After huggingface/diffusers#4619 and #4478 (train_text_to_image_lora_sdxl.py: Input type (c10::Half) and bias type (float) should be
the same, in vae.encode). The VAE overflows in half precision and is left in float32 on purpose; the line that prepares its
input was copied from the script whose VAE is in half. Right change: leave the pixels in float32 (vae.dtype); the latents are
cast after encoding.
"""
import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import cast_training_params
from peft import LoraConfig
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPTextConfig, CLIPTextModel


class Args:
    seed = 7
    rank = 4
    train_batch_size = 2
    gradient_accumulation_steps = 1
    max_train_steps = 10
    learning_rate = 1e-4
    lr_scheduler = "constant"
    max_grad_norm = 1.0
    mixed_precision = "bf16"
    resolution = 16


class Pokemon(Dataset):
    def __init__(self, n, resolution):
        generator = torch.Generator().manual_seed(1)
        self.pixels = torch.rand(n, 3, resolution, resolution, generator=generator) * 2 - 1
        self.ids = torch.randint(2, 60, (n, 6), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"pixel_values": self.pixels[i], "input_ids": self.ids[i]}


def collate_fn(examples):
    return {"pixel_values": torch.stack([e["pixel_values"] for e in examples]).contiguous().float(),
            "input_ids": torch.stack([e["input_ids"] for e in examples])}


def load_models():
    text_encoder = CLIPTextModel(CLIPTextConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=8,
        bos_token_id=0, eos_token_id=1, pad_token_id=1))
    vae = AutoencoderKL(block_out_channels=(16, 16), down_block_types=("DownEncoderBlock2D",) * 2,
                        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8, latent_channels=4)
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1, cross_attention_dim=16,
        attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
    return text_encoder, vae, unet


def main(args):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, mixed_precision=args.mixed_precision,
                              cpu=True)
    set_seed(args.seed)

    noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear")
    text_encoder, vae, unet = load_models()
    for model in (text_encoder, vae, unet):
        model.requires_grad_(False)

    weight_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(accelerator.mixed_precision, torch.float32)
    lora_config = LoraConfig(r=args.rank, lora_alpha=args.rank, init_lora_weights="gaussian",
                             target_modules=["to_k", "to_q", "to_v", "to_out.0"])

    unet.to(accelerator.device, dtype=weight_dtype)
    text_encoder.to(accelerator.device, dtype=weight_dtype)
    # The VAE is in float32 to avoid NaN losses.
    vae.to(accelerator.device, dtype=torch.float32)

    unet.add_adapter(lora_config)
    if args.mixed_precision in ("fp16", "bf16"):
        cast_training_params(unet, dtype=torch.float32)

    lora_layers = [p for p in unet.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(lora_layers, lr=args.learning_rate, betas=(0.9, 0.999), weight_decay=1e-2, eps=1e-8)

    dataloader = DataLoader(Pokemon(8, args.resolution), batch_size=args.train_batch_size, shuffle=True, collate_fn=collate_fn)
    lr_scheduler = get_scheduler(args.lr_scheduler, optimizer=optimizer, num_training_steps=args.max_train_steps)
    unet, optimizer, dataloader, lr_scheduler = accelerator.prepare(unet, optimizer, dataloader, lr_scheduler)

    global_step = 0
    for epoch in range(math.ceil(args.max_train_steps / len(dataloader))):
        unet.train()
        train_loss = 0.0
        for batch in dataloader:
            with accelerator.accumulate(unet):
                pixel_values = batch["pixel_values"].to(accelerator.device, dtype=weight_dtype)  # BORN
                latents = vae.encode(pixel_values).latent_dist.sample()  # COLLIDES
                latents = latents * vae.config.scaling_factor
                latents = latents.to(weight_dtype)

                noise = torch.randn_like(latents)
                timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (latents.shape[0],)).long()
                noisy_latents = noise_scheduler.add_noise(latents, noise, timesteps)
                encoder_hidden_states = text_encoder(batch["input_ids"], return_dict=False)[0]

                if noise_scheduler.config.prediction_type == "epsilon":
                    target = noise
                else:
                    target = noise_scheduler.get_velocity(latents, noise, timesteps)
                model_pred = unet(noisy_latents, timesteps, encoder_hidden_states, return_dict=False)[0]
                loss = F.mse_loss(model_pred.float(), target.float(), reduction="mean")
                train_loss += loss.item()

                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(lora_layers, args.max_grad_norm)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            global_step += 1
            if global_step >= args.max_train_steps:
                break
        print(f"epoch {epoch}: finite {math.isfinite(train_loss)}")
    accelerator.end_training()


if __name__ == "__main__":
    main(Args())
