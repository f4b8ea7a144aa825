"""
title: inpainting DreamBooth: the batch is moved to half precision, the VAE is not
expect: collision
thread: https://github.com/ShivamShrirao/diffusers/issues/227
fix_at: 49, 66, 73, 78

Expectation, written first: every tensor of the batch goes through the same cast to the weight dtype, the VAE is only
frozen and keeps float32; its first convolution gets half-precision pixels and refuses.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from torch.utils.data import DataLoader, Dataset


class DreamBoothInpaintSet(Dataset):
    def __init__(self, n, size):
        g = torch.Generator().manual_seed(0)
        self.images = torch.rand(n, 3, size, size, generator=g) * 2 - 1
        self.size = size

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        mask = torch.zeros(1, self.size, self.size)
        mask[:, 4 + i % 4 : 20, 6:22] = 1
        return {"instance_images": self.images[i], "masks": mask, "instance_prompt_ids": torch.arange(5) + i}


def collate_fn(examples):
    pixel_values = torch.stack([e["instance_images"] for e in examples])
    masks = torch.stack([e["masks"] for e in examples])
    return {
        "input_ids": torch.stack([e["instance_prompt_ids"] for e in examples]),
        "pixel_values": pixel_values,
        "masks": masks,
        "masked_images": pixel_values * (masks < 0.5),
    }


def get_weight_dtype(args):
    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(args.mixed_precision, torch.float32)


def to_training_dtype(batch, weight_dtype):
    return {k: v.to(weight_dtype) if v.is_floating_point() else v for k, v in batch.items()}  # BORN


class Trainer:
    def __init__(self, args):
        self.args, self.dtype = args, get_weight_dtype(args)
        self.vae = AutoencoderKL(
            block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, sample_size=args.resolution,
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        )
        self.unet = UNet2DConditionModel(
            sample_size=16, in_channels=9, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
            norm_num_groups=8, cross_attention_dim=16, attention_head_dim=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        )
        self.text_encoder = torch.nn.Embedding(64, 16).to(self.dtype).requires_grad_(False)
        self.vae.requires_grad_(False)
        self.noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
        self.optimizer = torch.optim.AdamW(self.unet.parameters(), lr=args.learning_rate)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def encode(self, pixels):
        with torch.no_grad():
            posterior = self.vae.encode(pixels).latent_dist  # COLLIDES
            return posterior.sample() * self.vae.config.scaling_factor

    def training_step(self, batch):
        batch = to_training_dtype(batch, self.dtype)
        latents, masked = self.encode(batch["pixel_values"]), self.encode(batch["masked_images"])
        mask = F.interpolate(batch["masks"], size=latents.shape[-2:])
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 1000, (len(latents),))
        noisy = self.noise_scheduler.add_noise(latents, noise, timesteps)
        with torch.autocast("cpu", dtype=self.dtype):
            states = self.text_encoder(batch["input_ids"])
            pred = self.unet(torch.cat([noisy, mask, masked], dim=1), timesteps, states).sample
        loss = F.mse_loss(pred.float(), noise.float())
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def main():
    args = Namespace(mixed_precision="fp16", resolution=32, learning_rate=1e-4, train_batch_size=2)
    torch.manual_seed(7)
    loader = DataLoader(DreamBoothInpaintSet(6, args.resolution), args.train_batch_size, collate_fn=collate_fn)
    trainer = Trainer(args)
    print([round(trainer.training_step(batch), 2) for batch in loader])


main()
