"""
title: text-to-image training the diffusers way: frozen half models, float32 UNet under autocast, SNR weights, EMA
expect: clean
thread: https://github.com/huggingface/diffusers/pull/2899
measured: loss 0.830 -> 0.576 (float32 0.576), worst difference 0.0003

Expectation, written first: the VAE encodes in float32, the trained UNet and its EMA are float32, the loss and the SNR
weights are computed in float32; only the UNet's products are bfloat16. The losses follow a float32 run.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from diffusers.training_utils import EMAModel, compute_snr
from torch.utils.data import DataLoader, Dataset


class CaptionedImages(Dataset):
    def __init__(self, n=8):
        g = torch.Generator().manual_seed(0)
        self.pixels, self.ids = torch.rand(n, 3, 32, 32, generator=g) * 2 - 1, torch.randint(0, 50, (n, 6), generator=g)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        return {"pixel_values": self.pixels[i], "input_ids": self.ids[i]}


def build(args):
    torch.manual_seed(args.seed)
    vae = AutoencoderKL(
        block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, sample_size=32,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    ).requires_grad_(False)
    unet = UNet2DConditionModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=16,
        attention_head_dim=8, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    text_encoder = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.LayerNorm(16)).requires_grad_(False)
    return vae.to(torch.float32), unet, text_encoder.to(args.weight_dtype)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.vae, self.unet, self.text_encoder = build(args)
        self.ema = EMAModel(self.unet.parameters(), decay=args.ema_decay, use_ema_warmup=True)
        self.scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear")
        self.optimizer = torch.optim.AdamW(self.unet.parameters(), lr=args.learning_rate, weight_decay=1e-2)
        self.generator = torch.Generator().manual_seed(args.seed)

    def weights(self, timesteps):
        snr = compute_snr(self.scheduler, timesteps).float()
        return torch.minimum(snr, torch.full_like(snr, self.args.snr_gamma)) / snr

    def loss(self, batch):
        with torch.no_grad():
            latents = self.vae.encode(batch["pixel_values"].float()).latent_dist.mode() * self.vae.config.scaling_factor
            states = self.text_encoder(batch["input_ids"])
        noise = torch.randn(latents.shape, generator=self.generator)
        timesteps = torch.randint(0, 1000, (len(latents),), generator=self.generator)
        noisy = self.scheduler.add_noise(latents, noise, timesteps)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.weight_dtype == torch.bfloat16):
            pred = self.unet(noisy, timesteps, states).sample
        per_sample = F.mse_loss(pred.float(), noise.float(), reduction="none").mean(dim=(1, 2, 3))
        return (per_sample * self.weights(timesteps)).mean()

    def train(self, loader, epochs):
        losses = []
        for _ in range(epochs):
            for batch in loader:
                loss = self.loss(batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.unet.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                self.ema.step(self.unet.parameters())
                losses.append(loss.item())
        return losses


def run(dtype):
    args = Namespace(seed=0, weight_dtype=dtype, learning_rate=1e-3, snr_gamma=5.0, ema_decay=0.995)
    return Trainer(args).train(DataLoader(CaptionedImages(), batch_size=4), epochs=4)


mixed, full = run(torch.bfloat16), run(torch.float32)
worst = max(abs(a - b) for a, b in zip(mixed, full))
assert worst < 0.02, (mixed, full)
print(f"loss {mixed[0]:.3f} -> {mixed[-1]:.3f} (float32 {full[-1]:.3f}), worst difference {worst:.4f}")
