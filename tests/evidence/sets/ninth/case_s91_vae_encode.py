"""
title: inpainting trainer feeds weight_dtype pixels to a VAE that was kept in float32
expect: collision
thread: https://github.com/ShivamShrirao/diffusers/issues/227
fix_at: 25

Expectation, written first: the loop casts masked pixels to weight_dtype before the
encode although the VAE was never moved off float32; conv refuses half input with a
float bias. Birth: the cast of the pixels.
"""
import torch
from torch import nn


class TinyVAE(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(16, 2 * latent, 3, stride=2, padding=1),
        )
        self.scaling_factor = 0.18215

    def encode(self, pixels):
        mean, logvar = self.encoder(pixels).chunk(2, dim=1)  # COLLIDES
        return mean + torch.randn_like(mean) * (0.5 * logvar.clamp(-30, 20)).exp()


class TinyUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(9, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 4, 3, padding=1))

    def forward(self, x):
        return self.body(x)


class InpaintTrainer:
    def __init__(self, mixed_precision="fp16"):
        self.weight_dtype = {"no": torch.float32, "fp16": torch.float16}[mixed_precision]
        self.vae = TinyVAE().requires_grad_(False)
        self.unet = TinyUNet()
        self.opt = torch.optim.AdamW(self.unet.parameters(), lr=1e-4)

    def prepare(self, batch):
        masked = batch["pixel_values"] * (batch["mask"] < 0.5)
        pixels = batch["pixel_values"]
        masked = masked.to(self.weight_dtype)  # BORN
        latents = self.vae.encode(pixels) * self.vae.scaling_factor
        masked_latents = self.vae.encode(masked) * self.vae.scaling_factor
        mask = nn.functional.interpolate(batch["mask"], size=latents.shape[-2:])
        return latents, masked_latents.float(), mask

    def step(self, batch):
        latents, masked_latents, mask = self.prepare(batch)
        noise = torch.randn_like(latents)
        noisy = (latents + noise) / 2 ** 0.5
        pred = self.unet(torch.cat([noisy, mask, masked_latents], dim=1))
        loss = nn.functional.mse_loss(pred, noise)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


torch.manual_seed(5)
trainer = InpaintTrainer()
for i in range(2):
    data = {"pixel_values": torch.rand(2, 3, 32, 32) * 2 - 1, "mask": (torch.rand(2, 1, 32, 32) > 0.7).float()}
    print("loss", round(trainer.step(data), 4))
