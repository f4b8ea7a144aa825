"""
title: collate makes the pixels float32, the frozen autoencoder was moved to the weight dtype
expect: collision
needs: diffusers, accelerate
fix_at: 54

After https://github.com/huggingface/diffusers/issues/4478 and https://github.com/huggingface/diffusers/issues/9476.
Right: hand the pixels over in the autoencoder's dtype.
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(18)


class Photos(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        image = torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8)
        return {"pixel_values": image.permute(2, 0, 1) / 127.5 - 1}


def collate_fn(examples):
    pixel_values = torch.stack([e["pixel_values"] for e in examples])
    pixel_values = pixel_values.to(memory_format=torch.contiguous_format).float()  # BORN
    return {"pixel_values": pixel_values}


def build():
    vae = AutoencoderKL(in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(8, 8), norm_num_groups=4,
                        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
    unet = UNet2DModel(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 8), layers_per_block=1,
                       norm_num_groups=4, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2)
    vae.requires_grad_(False)
    return vae.eval(), unet


def main():
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    weight_dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else torch.float32
    vae, unet = build()
    scheduler = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
    loader = DataLoader(Photos(), batch_size=4, collate_fn=collate_fn)
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    vae.to(accelerator.device, dtype=weight_dtype)
    for step, batch in enumerate(loader):
        with accelerator.accumulate(unet):
            pixels = batch["pixel_values"]
            latents = vae.encode(pixels).latent_dist.mode() * 0.18215  # COLLIDES
            noise = torch.randn_like(latents)
            t = torch.randint(0, 100, (latents.shape[0],))
            noisy = scheduler.add_noise(latents, noise, t)
            loss = F.mse_loss(unet(noisy, t).sample.float(), noise.float())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print(step, round(loss.item(), 3))


main()
