"""
title: FreeU runs its FFT on half precision features
expect: collision
thread: https://github.com/huggingface/diffusers/pull/13503
fix_at: (none beside the marked)

Expectation, written first: fourier_filter lifts bfloat16 features to float32 before fftn but leaves float16 as it
is. On the CPU fftn has no half kernel and raises "Unsupported dtype Half" in the first up block.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fourier_filter(x_in, threshold, scale):
    x = x_in
    B, C, H, W = x.shape
    if (W & (W - 1)) != 0 or (H & (H - 1)) != 0:
        x = x.to(dtype=torch.float32)
    elif x.dtype == torch.bfloat16:  # BORN
        x = x.to(dtype=torch.float32)
    x_freq = torch.fft.fftn(x, dim=(-2, -1))  # BORN COLLIDES
    x_freq = torch.fft.fftshift(x_freq, dim=(-2, -1))
    mask = torch.ones((B, C, H, W))
    crow, ccol = H // 2, W // 2
    mask[..., crow - threshold:crow + threshold, ccol - threshold:ccol + threshold] = scale
    x_freq = torch.fft.ifftshift(x_freq * mask, dim=(-2, -1))
    return torch.fft.ifftn(x_freq, dim=(-2, -1)).real.to(dtype=x_in.dtype)


def apply_freeu(resolution_idx, hidden_states, res_hidden_states, s1, s2, b1, b2):
    num_half_channels = hidden_states.shape[1] // 2
    hidden_states = hidden_states.clone()
    scale, backbone = (s1, b1) if resolution_idx == 0 else (s2, b2)
    hidden_states[:, :num_half_channels] = hidden_states[:, :num_half_channels] * backbone
    return hidden_states, fourier_filter(res_hidden_states, threshold=1, scale=scale)


class UpBlock2D(nn.Module):
    def __init__(self, channels, resolution_idx):
        super().__init__()
        self.resolution_idx = resolution_idx
        self.conv = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.freeu = None

    def forward(self, hidden_states, res_hidden_states):
        if self.freeu is not None:
            hidden_states, res_hidden_states = apply_freeu(
                self.resolution_idx, hidden_states, res_hidden_states, **self.freeu)
        return F.silu(self.conv(torch.cat([hidden_states, res_hidden_states], dim=1)))


class TinyUNet(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.conv_in = nn.Conv2d(4, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(channels, channels, 3, padding=1)
        self.up_blocks = nn.ModuleList([UpBlock2D(channels, 0), UpBlock2D(channels, 1)])
        self.conv_out = nn.Conv2d(channels, 4, 3, padding=1)

    def enable_freeu(self, s1, s2, b1, b2):
        for block in self.up_blocks:
            block.freeu = dict(s1=s1, s2=s2, b1=b1, b2=b2)

    def forward(self, sample):
        r0 = self.conv_in(sample)
        r1 = self.down(F.silu(r0))
        h = self.mid(F.silu(r1))
        h = self.up_blocks[0](h, r1)
        h = F.interpolate(h, scale_factor=2.0)
        return self.conv_out(self.up_blocks[1](h, r0))


@torch.no_grad()
def text_to_image(unet, torch_dtype, steps=3):
    latents = torch.randn(1, 4, 16, 16).to(torch_dtype)
    for _ in range(steps):
        latents = latents - 0.1 * unet(latents)
    return latents


if __name__ == "__main__":
    torch.manual_seed(12504)
    torch_dtype = torch.float16  # BORN
    unet = TinyUNet().eval().to(torch_dtype)  # BORN
    print("plain", round(text_to_image(unet, torch_dtype).float().std().item(), 3))
    unet.enable_freeu(s1=0.9, s2=0.2, b1=1.2, b2=1.4)
    print("freeu", round(text_to_image(unet, torch_dtype).float().std().item(), 3))
