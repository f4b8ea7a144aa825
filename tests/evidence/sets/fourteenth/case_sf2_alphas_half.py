"""
title: the noise schedule goes to half precision together with the rest of the model
expect: silent:precision-loss|downcast|underflow|round-trip|overflow
thread: https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/14071
measured: largest sigma inf, smallest 0.0000, spread of the samples nan
widened: largest sigma 7670, smallest 0.0141, spread of the samples 0.21

Expectation, written first: the last values of alphas_cumprod of a schedule near zero terminal SNR lie below the
float16 steps, so the largest sigma is wrong by much or infinite, and near the start 1 - alpha keeps three digits. The
weights of the network become half precision too, and change its output in the third digit only.
"""
import torch
from torch import nn


class LatentDiffusion(nn.Module):
    def __init__(self, steps=1000, last=1.7e-8):
        super().__init__()
        t = torch.linspace(0, 1, steps, dtype=torch.float64)
        root = (1 - 5e-5 - 0.2 * t**2) * (1 - t) + last**0.5
        self.register_buffer("alphas_cumprod", root.clamp(max=0.9999).square().float())
        self.net = nn.Linear(2, 2)
        with torch.no_grad():
            self.net.weight.copy_(torch.tensor([[0.31, 0.0], [0.0, 0.29]]))
            self.net.bias.zero_()

    def load_half(self, dtype):
        for p in self.parameters():
            p.data = p.data.to(dtype)
        for buffer in self.buffers():
            buffer.data = buffer.data.to(dtype)  # BORN
        return self

    def denoise(self, x, sigma):
        scaled = x / (sigma**2 + 1).sqrt()
        return self.net(scaled.to(self.net.weight.dtype)).to(x.dtype)


class Sampler:
    def __init__(self, model):
        alphas = model.alphas_cumprod.double()
        self.model = model
        self.sigmas = ((1 - alphas) / alphas).sqrt()

    def schedule(self, n):
        index = torch.linspace(len(self.sigmas) - 1, 0, n).round().long()
        return self.sigmas[index]

    def run(self, noise, n=12):
        sigmas = self.schedule(n)
        x = noise * sigmas[0]
        for now, then in zip(sigmas[:-1], sigmas[1:]):
            x = x + (x - self.model.denoise(x, now)) / now * (then - now)
        return x, sigmas


def main():
    torch.manual_seed(0)
    model = LatentDiffusion().load_half(torch.float16)  # BORN
    with torch.no_grad():
        x, sigmas = Sampler(model).run(torch.randn(64, 2, dtype=torch.float64))
    print(f"largest sigma {sigmas[0].item():.0f}, smallest {sigmas[-1].item():.4f}, spread of the samples {x.std().item():.2f}")


main()
