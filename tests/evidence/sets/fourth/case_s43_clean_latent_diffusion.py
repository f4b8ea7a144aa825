"""
title: a float32 UNet under accelerate's bf16, a frozen bfloat16 autoencoder, timesteps as integers
expect: clean
needs: diffusers, accelerate

The recipe of diffusers' train_text_to_image.py; compare https://github.com/huggingface/diffusers/issues/4478.
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel, compute_snr
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(43)


class Squares(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        image = torch.zeros(16, 16, 3, dtype=torch.uint8)
        image[i % 8:i % 8 + 6, 4:10] = 200
        return image.permute(2, 0, 1) / 127.5 - 1


def build():
    vae = AutoencoderKL(in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(8, 8), norm_num_groups=4,
                        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
    unet = UNet2DModel(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 16), layers_per_block=1,
                       norm_num_groups=4, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2)
    return vae.eval().requires_grad_(False), unet


def main(gamma=5.0):
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    vae, unet = build()
    vae.to(torch.bfloat16)
    ema = EMAModel(unet.parameters(), decay=0.95)
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=2e-3)
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, DataLoader(Squares(), batch_size=4))
    for epoch in range(2):
        for pixels in loader:
            with torch.no_grad():
                latents = vae.encode(pixels.to(torch.bfloat16)).latent_dist.mode().float() * 0.18215
            noise = torch.randn_like(latents)
            t = torch.randint(0, 1000, (latents.shape[0],))
            noisy = scheduler.add_noise(latents, noise, t)
            predicted = unet(noisy, t).sample.float()
            snr = compute_snr(scheduler, t)
            weight = snr.clamp(max=gamma) / snr
            loss = (F.mse_loss(predicted, noise, reduction="none").mean((1, 2, 3)) * weight).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            ema.step(unet.parameters())
    print("loss", round(loss.item(), 3))


main()
