"""
title: Gaussian blur of double latents with a float kernel in frequency-decoupled guidance
expect: collision
thread: https://github.com/siraxe/ComfyUI-LTX-FDG/issues/2
fix_at: the sampler's .double() of the latents before the step

Expectation, written first: The res2s sampler keeps its latents in float64, Euler does not. The guidance
splits the predictions into frequencies with a Gaussian kernel that is always made in float32, so conv2d
gets a Double input and a Float kernel and raises; with Euler the same code runs.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def _gaussian_kernel_2d(kernel_size, sigma, device):
    coords = torch.arange(kernel_size, dtype=torch.float32, device=device) - (kernel_size - 1) / 2  # BORN
    g = torch.exp(-(coords ** 2) / (2 * sigma ** 2))
    g = g / g.sum()
    return torch.outer(g, g)


def _gaussian_blur_2d(tensor, kernel_size=5, sigma=1.0):
    kernel = _gaussian_kernel_2d(kernel_size, sigma, tensor.device)  # BORN
    kernel = kernel.expand(tensor.shape[1], 1, kernel_size, kernel_size)
    pad = kernel_size // 2
    tensor = F.pad(tensor, (pad, pad, pad, pad), mode="reflect")
    blurred = F.conv2d(tensor, kernel, groups=tensor.shape[1])  # BORN COLLIDES
    return blurred


class FDGuidance:
    def __init__(self, w_low, w_high):
        self.w_low = w_low
        self.w_high = w_high

    def __call__(self, cond, uncond):
        low_c, low_u = _gaussian_blur_2d(cond), _gaussian_blur_2d(uncond)
        high_c, high_u = cond - low_c, uncond - low_u
        return low_u + self.w_low * (low_c - low_u) + high_u + self.w_high * (high_c - high_u)


class LatentModel(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.net = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, scale):
        return (self.net(x.to(self.net.weight.dtype)) * scale).to(x.dtype)


def step_euler(model, guider, x, sigma, sigma_next):
    denoised = guider(model(x, 1.0), model(x, 0.5))
    return x + (x - denoised) / sigma * (sigma_next - sigma)


def step_res2s(model, guider, x, sigma, sigma_next):
    x = x.double()
    h = sigma_next - sigma
    k1 = (x - guider(model(x, 1.0), model(x, 0.5))) / sigma
    x_mid = x + 0.5 * h * k1
    k2 = (x_mid - guider(model(x_mid, 1.0), model(x_mid, 0.5))) / (sigma + 0.5 * h)
    return (x + h * k2).float()


@torch.no_grad()
def main():
    torch.manual_seed(11)
    model, guider = LatentModel(4).eval(), FDGuidance(1.5, 4.0)
    x = torch.randn(1, 4, 16, 16)
    x = step_euler(model, guider, x, 1.0, 0.8)
    print("euler", round(x.abs().mean().item(), 4))
    x = step_res2s(model, guider, x, 0.8, 0.6)
    print("res2s", round(x.abs().mean().item(), 4))


if __name__ == "__main__":
    main()
