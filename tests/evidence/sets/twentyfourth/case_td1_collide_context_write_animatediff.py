"""
title: Index put of half UNet output into the float buffer of the context loop
expect: collision
thread: https://github.com/continue-revolution/sd-webui-animatediff/issues/168
fix_at: (none beside the marked)

Expectation, written first: The sampler's latents are float32, the UNet runs in half and hands back half.
The context loop allocates its output like the latents (float32) and writes each window through an index
list, which does not cast: index_put raises for Float destination and Half source.
"""
import torch
import torch.nn as nn


class TemporalBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.proj_in = nn.Conv2d(channels, channels * 2, 3, padding=1)
        self.act = nn.SiLU()
        self.proj_out = nn.Conv2d(channels * 2, channels, 3, padding=1)

    def forward(self, x, sigma):
        h = self.proj_in(x) * (1 + sigma.view(-1, 1, 1, 1))
        return x + self.proj_out(self.act(h))


class WrappedUnet:
    def __init__(self, unet, dtype_unet):
        self.unet = unet.to(dtype_unet).eval()
        self.dtype_unet = dtype_unet

    def __call__(self, x, sigma):
        return self.unet(x.to(self.dtype_unet), sigma.to(self.dtype_unet))  # BORN


def uniform_contexts(video_length, context_size, overlap):
    step = context_size - overlap
    for start in range(0, video_length, step):
        yield [(start + i) % video_length for i in range(context_size)]


class AnimateDiffInfV2V:
    def __init__(self, inner_model, context_size=4, overlap=2):
        self.inner_model = inner_model
        self.context_size = context_size
        self.overlap = overlap

    def mm_cfg_forward(self, x_in, sigma_in):
        x_out = torch.zeros_like(x_in)  # BORN
        for context in uniform_contexts(x_in.shape[0], self.context_size, self.overlap):
            x_out[context] = self.inner_model(x_in[context], sigma_in[context])  # BORN COLLIDES
        return x_out


@torch.no_grad()
def sample_euler(denoiser, x, sigmas):
    for i in range(len(sigmas) - 1):
        s_in = sigmas[i].expand(x.shape[0])
        denoised = denoiser.mm_cfg_forward(x, s_in)
        d = (x - denoised) / sigmas[i]
        x = x + d * (sigmas[i + 1] - sigmas[i])
    return x


def main():
    torch.manual_seed(7)
    unet = WrappedUnet(TemporalBlock(4), torch.float16)
    denoiser = AnimateDiffInfV2V(unet)
    sigmas = torch.linspace(1.0, 0.1, 4)
    latents = torch.randn(8, 4, 8, 8) * sigmas[0]
    video = sample_euler(denoiser, latents, sigmas)
    print("video", tuple(video.shape), round(video.std().item(), 4))


if __name__ == "__main__":
    main()
