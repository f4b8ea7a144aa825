"""
title: sliding context windows of a half video denoiser are written into a float32 result
expect: collision
thread: https://github.com/continue-revolution/sd-webui-animatediff/issues/168

Expectation, written first: the result of all frames is allocated without a dtype, each
window's prediction is float16 as the denoiser is, and writing by a list of frame numbers
goes through index_put, which refuses.
"""
import torch
from torch import nn


class FrameDenoiser(nn.Module):
    def __init__(self, channels=4, width=16):
        super().__init__()
        self.inp = nn.Conv2d(channels, width, 3, padding=1)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, frames, sigma):
        h = torch.nn.functional.silu(self.inp(frames / (1 + sigma ** 2) ** 0.5))
        f, c, y, x = h.shape
        t = self.mix(h.permute(2, 3, 1, 0).reshape(y * x, c, f))
        return self.out(h + t.reshape(y, x, c, f).permute(3, 2, 0, 1))


def windows(n_frames, length=8, stride=4):
    for start in range(0, n_frames, stride):
        yield [(start + i) % n_frames for i in range(length)]


class VideoSampler:
    def __init__(self, model):
        self.model = model

    def predict(self, latents, sigma):
        seen = torch.zeros(len(latents))
        pred = torch.zeros(latents.shape)  # BORN
        for frames in windows(len(latents)):
            pred[frames] = self.model(latents[frames], sigma)  # COLLIDES
            seen[frames] += 1
        assert (seen > 0).all()
        return pred

    def sample(self, latents, sigmas):
        for now, after in zip(sigmas[:-1], sigmas[1:]):
            d = (latents - self.predict(latents, now)) / now
            latents = latents + d * (after - now)
        return latents


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = FrameDenoiser().half()
    latents = 4 * torch.randn(16, 4, 8, 8, dtype=torch.float16)
    frames = VideoSampler(model).sample(latents, [4.0, 2.0, 1.0, 0.5])
    print("mean size", frames.float().abs().mean().item())


main()
