"""
title: A NumPy frequency-separation sharpen node hands float64 images to the VAE encoder
expect: collision
thread: https://github.com/ClownsharkBatwing/RES4LYF/issues/145
fix_at: (none beside the marked)

Expectation, written first: The sharpen node works in NumPy with a float64 Gaussian kernel; its result is wrapped
back with from_numpy and so is float64. The film grain node casts back to float32, without it the upscaler's VAE
encode runs conv2d on Double input with a Float bias and raises.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def gaussian_blur(image, radius):
    coords = np.arange(-radius, radius + 1)
    kernel = np.exp(-coords ** 2 / (2.0 * (radius / 2) ** 2))  # BORN
    kernel /= kernel.sum()
    out = np.pad(image, ((radius, radius), (radius, radius), (0, 0)), mode="edge")
    out = sum(w * out[i:i + image.shape[0]] for i, w in enumerate(kernel))  # BORN
    return sum(w * out[:, i:i + image.shape[1]] for i, w in enumerate(kernel))  # BORN


class ImageSharpenFS:
    def main(self, images, method, intensity, radius=2):
        results = []
        for img in images:
            img_np = img.cpu().numpy()
            low = gaussian_blur(img_np, radius)
            if method == "hard":
                sharpened = img_np + intensity * np.sign(img_np - low) * np.abs(img_np - low)
            else:
                sharpened = low + (img_np - low) * (1 + intensity)  # BORN
            results.append(torch.from_numpy(np.clip(sharpened, 0, 1)))  # BORN
        return torch.stack(results)


class FilmGrain:
    def main(self, images, power):
        generator = torch.Generator().manual_seed(1)
        grain = torch.randn(images.shape, generator=generator)
        return (images + power * grain).clamp(0, 1).to(torch.float32)


class AutoencoderKL(nn.Module):
    def __init__(self, z=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, z, 4, stride=4))
        self.decoder = nn.Sequential(nn.Conv2d(z, 8, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=4),
                                     nn.Conv2d(8, 3, 3, padding=1))

    def encode(self, pixels):
        pixels = pixels.movedim(-1, 1) * 2.0 - 1.0
        return self.encoder(pixels)  # COLLIDES

    def decode(self, latent):
        return (self.decoder(latent).movedim(1, -1) / 2 + 0.5).clamp(0, 1)


class UltimateSDUpscale:
    def __init__(self, vae, tile=16):
        self.vae, self.tile = vae, tile

    def upscale(self, image, upscale_by, denoise):
        image = F.interpolate(image.movedim(-1, 1), scale_factor=upscale_by, mode="bilinear").movedim(1, -1)
        result = image.clone()
        for y in range(0, image.shape[1], self.tile):
            for x in range(0, image.shape[2], self.tile):
                window = image[:, y:y + self.tile, x:x + self.tile]
                latent = self.vae.encode(window)
                latent = latent + denoise * torch.randn_like(latent)
                result[:, y:y + self.tile, x:x + self.tile] = self.vae.decode(latent)
        return result


@torch.no_grad()
def main():
    torch.manual_seed(145)
    image = torch.rand(1, 16, 16, 3)
    upscaler = UltimateSDUpscale(AutoencoderKL().eval())
    grainy = FilmGrain().main(ImageSharpenFS().main(image, "soft", 0.5), 0.02)
    print("sharpen + grain", round(upscaler.upscale(grainy, 2, 0.1).mean().item(), 4))
    sharp = ImageSharpenFS().main(image, "soft", 0.5)
    print("sharpen only", round(upscaler.upscale(sharp, 2, 0.1).mean().item(), 4))


if __name__ == "__main__":
    main()
