"""
title: a mask made from 8-bit pixels and cast to the dtype of the latents it is joined with
expect: clean
needs: diffusers

Image, latents, mask, prompt and network are float16; the UNet's float32 sinusoid is cast by the library.
"""
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel
from torch.utils.data import DataLoader, Dataset

TRAIN_DTYPE = torch.float16


def tiny_unet():
    return UNet2DConditionModel(
        sample_size=16, in_channels=9, out_channels=4, block_out_channels=(32, 64), layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8,
    ).to(TRAIN_DTYPE)


def mask_like(image):
    """Paint everything: a white 8-bit picture of the image's size, scaled to 0..1."""
    white = np.full((1, *image.shape[-2:]), 255, dtype=np.uint8)
    return (torch.from_numpy(white) / 255).to(TRAIN_DTYPE)


def scale_down(picture, factor):
    return F.interpolate(picture.unsqueeze(0), scale_factor=1 / factor, mode="nearest").squeeze(0)


class Inpainting(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, 128, 128, generator=generator).to(TRAIN_DTYPE)
        latent = torch.randn(4, 16, 16, generator=generator).to(TRAIN_DTYPE)
        return {
            "latent_image": latent,
            "latent_mask": scale_down(mask_like(image), 8),
            "latent_conditioning_image": latent * 0.5,
            "prompt": torch.randn(7, 32, generator=generator, dtype=TRAIN_DTYPE),
        }


def predict(unet, scheduler, batch):
    noise = torch.randn(batch["latent_image"].shape).to(TRAIN_DTYPE)
    timestep = torch.randint(0, 1000, (noise.shape[0],))
    noisy = scheduler.add_noise(batch["latent_image"], noise, timestep)
    sample = torch.cat([noisy, batch["latent_mask"], batch["latent_conditioning_image"]], dim=1)
    predicted = unet(sample, timestep, encoder_hidden_states=batch["prompt"]).sample
    return F.mse_loss(predicted.float(), noise.float())


if __name__ == "__main__":
    torch.manual_seed(0)
    unet, scheduler = tiny_unet(), DDPMScheduler()
    for batch in DataLoader(Inpainting(), batch_size=2):
        loss = predict(unet, scheduler, batch)
        loss.backward()
        print("loss", round(loss.item(), 3))
