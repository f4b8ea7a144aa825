"""Fine-tunes LoRA weights of a text-to-image UNet, shaped like the scripts that diffusers comes with: accelerate, frozen
half-precision models, float32 adapters, a loss in float32, validation after each epoch."""

import argparse
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import cast_training_params, compute_snr
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPTextModel


class Pictures(Dataset):
    def __init__(self, size, count=16):
        self.size, self.count = size, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = np.random.default_rng(index).random((3, self.size, self.size))
        return {"pixel_values": torch.from_numpy(picture) * 2 - 1, "input_ids": torch.arange(7) + index % 3}


def collate(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    pixel_values = pixel_values.to(memory_format=torch.contiguous_format).float()
    return {"pixel_values": pixel_values, "input_ids": torch.stack([e["input_ids"] for e in examples])}


@torch.no_grad()
def validate(accelerator, unet, vae, scheduler, states, size, weight_dtype):
    unet = accelerator.unwrap_model(unet, keep_fp32_wrapper=False)
    generator = torch.Generator(device=accelerator.device).manual_seed(0)
    latents = torch.randn((1, 4, size, size), generator=generator, device="cuda")
    scheduler.set_timesteps(3, device="cuda")
    with torch.autocast("cuda", dtype=weight_dtype):
        for timestep in scheduler.timesteps:
            noise = unet(latents, timestep, states[:1]).sample
            latents = scheduler.step(noise, timestep, latents).prev_sample
    picture = vae.decode(latents.to(weight_dtype) / vae.config.scaling_factor).sample
    picture = (picture / 2 + 0.5).clamp(0, 1).cpu().permute(0, 2, 3, 1).float().numpy()
    return (picture * 255).round().astype("uint8")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("pretrained")
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--mixed_precision", default="fp16")
    parser.add_argument("--snr_gamma", type=float, default=5.0)
    parser.add_argument("--checkpointing_steps", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps, mixed_precision=args.mixed_precision
    )
    set_seed(1)
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear")
    text_encoder = CLIPTextModel.from_pretrained(args.pretrained, subfolder="text_encoder")
    vae = AutoencoderKL.from_pretrained(args.pretrained, subfolder="vae")
    unet = UNet2DConditionModel.from_pretrained(args.pretrained, subfolder="unet")
    unet.requires_grad_(False)
    vae.requires_grad_(False)
    text_encoder.requires_grad_(False)

    weight_dtype = torch.float32
    if accelerator.mixed_precision == "fp16":
        weight_dtype = torch.float16
    elif accelerator.mixed_precision == "bf16":
        weight_dtype = torch.bfloat16
    unet.to(accelerator.device, dtype=weight_dtype)
    vae.to(accelerator.device, dtype=weight_dtype)
    text_encoder.to(accelerator.device, dtype=weight_dtype)
    unet.add_adapter(LoraConfig(r=4, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    if args.mixed_precision == "fp16":
        cast_training_params(unet, dtype=torch.float32)
    unet.enable_gradient_checkpointing()
    lora = [p for p in unet.parameters() if p.requires_grad]

    optimizer = torch.optim.AdamW(lora, lr=1e-4)
    loader = DataLoader(Pictures(args.resolution), shuffle=True, collate_fn=collate, batch_size=2)
    steps = args.epochs * math.ceil(len(loader) / args.gradient_accumulation_steps)
    schedule = get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=2, num_training_steps=steps)
    unet, optimizer, loader, schedule = accelerator.prepare(unet, optimizer, loader, schedule)

    done = 0
    for epoch in range(args.epochs):
        unet.train()
        train_loss = 0.0
        for batch in loader:
            with accelerator.accumulate(unet):
                latents = vae.encode(batch["pixel_values"].to(dtype=weight_dtype)).latent_dist.sample()
                latents = latents * vae.config.scaling_factor
                noise = torch.randn_like(latents)
                bsz = latents.shape[0]
                timesteps = torch.randint(0, 1000, (bsz,), device=latents.device).long()
                noisy = noise_scheduler.add_noise(latents, noise, timesteps)
                states = text_encoder(batch["input_ids"], return_dict=False)[0]
                prediction = unet(noisy, timesteps, states, return_dict=False)[0]
                snr = compute_snr(noise_scheduler, timesteps)
                weights = torch.stack([snr, args.snr_gamma * torch.ones_like(timesteps)], dim=1).min(dim=1)[0] / snr
                loss = F.mse_loss(prediction.float(), noise.float(), reduction="none")
                loss = (loss.mean(dim=list(range(1, len(loss.shape)))) * weights).mean()
                if torch.isnan(loss):
                    raise ValueError("the loss is NaN")
                average = accelerator.gather(loss.repeat(2)).mean()
                train_loss += average.item() / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(lora, 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                if done % args.checkpointing_steps == 0:
                    accelerator.save_state(os.path.join(args.output_dir, f"checkpoint-{done}"))
        images = validate(accelerator, unet, vae, noise_scheduler, states, args.resolution // 2, weight_dtype)
        if epoch == 0:
            print("validated", images.shape, images.dtype, f"{train_loss / done:.2f}")
    state = get_peft_model_state_dict(accelerator.unwrap_model(unet).to(torch.float32))
    print("done", done, len(state))


if __name__ == "__main__":
    main()
