"""
title: gaussian noise on uint8 images goes through int16 and is clamped before it returns to bytes
expect: clean
thread: https://github.com/pytorch/vision/pull/9169
measured: noise mean -0.0001 sigma 0.0500 | largest deviation anywhere 0.231 | psnr 26.2 dB
suspect: line 25, the values are clamped to 0..255 before

Expectation, written first: the noise is rounded to int16, added to the widened image and clamped to 0..255, then cast back to uint8. No value
wraps, the mean and the spread of the noise are those asked for. The cast to uint8 is safe because of the clamp.
"""
import torch


def gaussian_noise(image, mean=0.0, sigma=0.1, clip=True):
    if sigma < 0:
        raise ValueError(f"sigma shouldn't be negative. Got {sigma}")
    if image.is_floating_point():
        out = image + mean + torch.randn_like(image) * sigma
        return out.clamp(0, 1) if clip else out
    if image.dtype == torch.uint8:
        noise = ((mean * 255) + torch.randn(image.shape) * sigma * 255).round().to(torch.int16)
        out = image.to(torch.int16) + noise
        if clip:
            out = out.clamp(0, 255)
        return out.to(torch.uint8)
    raise ValueError(f"Input tensor is expected to be in uint8 or float dtype, got {image.dtype}")


class GaussianNoise:
    def __init__(self, mean=0.0, sigma=0.1, clip=True):
        self.mean, self.sigma, self.clip = mean, sigma, clip

    def __call__(self, image):
        return gaussian_noise(image, self.mean, self.sigma, self.clip)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for t in self.transforms:
            image = t(image)
        return image


def horizontal_flip(image):
    return image.flip(-1)


def to_float(image):
    return image.to(torch.float32) / 255


def test_card(size=64):
    ramp = torch.linspace(0, 255, size).round().to(torch.uint8)
    flat = torch.full((size,), 128, dtype=torch.uint8)
    return torch.stack([ramp.expand(size, size), ramp.flip(0).expand(size, size), flat.expand(size, size)])


torch.manual_seed(0)
pipeline = Compose([GaussianNoise(sigma=0.05), horizontal_flip, to_float])
card = test_card()
stack = torch.stack([pipeline(card) for _ in range(24)])
clean = to_float(horizontal_flip(card))
residual = stack[:, 2] - clean[2]
print("noise mean %+.4f sigma %.4f" % (residual.mean(), residual.std()))
print("largest deviation anywhere %.3f" % (stack - clean).abs().max())
print("psnr %.1f dB" % (-10 * torch.log10(((stack - clean) ** 2).mean())))
