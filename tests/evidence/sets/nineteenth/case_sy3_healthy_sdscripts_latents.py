"""
title: VAE latents cached on disk in float16 and brought back to float32 for training
expect: clean
thread: https://github.com/kohya-ss/sd-scripts/issues/1750
measured: relative error of the cache 2.1e-04; loss without cache 0.4611 with cache 0.4612
suspect: 38 cache (latents of unit scale fit float16; they are inputs that are noised, not sums)

Expectation, written first: the VAE encodes in float32; the latents go to a safetensors file per image under a key that names float16, half
the size, and are cast back to float32 when the batch is made. Latents have unit scale, so the error is some 2**-12 of them, far under the
noise that the training adds, and the training loss is the same as without the cache.
"""
import os
import tempfile

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler
from safetensors.torch import load_file, save_file


class LatentsCachingStrategy:
    ARCHITECTURE = "sd"

    def __init__(self, cache_dir, cache_dtype=torch.float16):
        self.cache_dir, self.cache_dtype = cache_dir, cache_dtype
        self.type_name = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}[cache_dtype]

    def path(self, name, width, height):
        return os.path.join(self.cache_dir, f"{name}_{width:04d}x{height:04d}_{self.ARCHITECTURE}.safetensors")

    @torch.no_grad()
    def cache_batch_latents(self, vae, infos):
        images = torch.stack([image for _, image in infos])
        latents = vae.encode(images.to(vae.dtype)).latent_dist.mode()
        for (name, image), latent in zip(infos, latents):
            key = f"latents_{latent.shape[-2]}x{latent.shape[-1]}_{self.type_name}"
            metadata = {"architecture": self.ARCHITECTURE, "format_version": "1.0.0"}
            stored = latent.to(self.cache_dtype).contiguous()
            save_file({key: stored}, self.path(name, image.shape[-1], image.shape[-2]), metadata=metadata)

    def load(self, name, width, height):
        tensors = load_file(self.path(name, width, height))
        (latent,) = [v for k, v in tensors.items() if k.startswith("latents_")]
        return latent.to(torch.float32)


def make_denoiser():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(32, 4, 3, padding=1)
    )


def train(latents, steps=60):
    model, scheduler = make_denoiser(), DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(steps):
        noise = torch.randn(latents.shape, generator=g)
        timesteps = torch.randint(0, 100, (latents.size(0),), generator=g)
        noisy = scheduler.add_noise(latents, noise, timesteps)
        loss = F.mse_loss(model(noisy), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


def main():
    torch.manual_seed(0)
    vae = AutoencoderKL(block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
                        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, latent_channels=4).eval()
    infos = [(f"image{i}", torch.rand(3, 16, 16) * 2 - 1) for i in range(6)]
    with torch.no_grad():
        direct = vae.encode(torch.stack([image for _, image in infos])).latent_dist.mode()
    with tempfile.TemporaryDirectory() as cache_dir:
        strategy = LatentsCachingStrategy(cache_dir)
        strategy.cache_batch_latents(vae, infos)
        cached = torch.stack([strategy.load(name, 16, 16) for name, _ in infos])
    scale = 1.0 / direct.std()
    print(f"relative error of the cache {((cached - direct).norm() / direct.norm()).item():.1e}")
    print(f"loss without cache {train(direct * scale):.4f} with cache {train(cached * scale):.4f}")


if __name__ == "__main__":
    main()
