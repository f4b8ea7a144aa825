"""
title: A UNet loaded as float8 without a cast in its linear layers
expect: collision
thread: https://github.com/kijai/ComfyUI-ControlNeXt-SVD/issues/7
fix_at: the linear layers of the cross attention have no cast before computing

Expectation, written first: with the precision option fp8_e4m3fn the loader casts every parameter of the UNet to
float8. The convolutions cast their weights back before computing, the plain nn.Linear of the attention does
not, and mm of Half and Float8_e4m3fn raises.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CastConv2d(nn.Conv2d):
    def forward(self, x):
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return self._conv_forward(x, self.weight.to(x.dtype), bias)


class CrossAttention(nn.Module):
    def __init__(self, dim, context_dim):
        super().__init__()
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(context_dim, dim, bias=False)
        self.to_v = nn.Linear(context_dim, dim, bias=False)

    def forward(self, x, context):
        q = self.to_q(x)  # COLLIDES
        k, v = self.to_k(context), self.to_v(context)
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]


class UNetSpatioTemporal(nn.Module):
    def __init__(self, channels=16, context_dim=12):
        super().__init__()
        self.conv_in = CastConv2d(8, channels, 3, padding=1)
        self.attn = CrossAttention(channels, context_dim)
        self.conv_out = CastConv2d(channels, 4, 3, padding=1)

    def forward(self, sample, image_embeddings, control):
        h = self.conv_in(sample) + control
        b, c, height, width = h.shape
        tokens = h.flatten(2).transpose(1, 2)
        tokens = tokens + self.attn(tokens, image_embeddings)
        return self.conv_out(F.silu(tokens.transpose(1, 2).view(b, c, height, width)))


class ControlNeXt(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.embedding = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.SiLU(),
                                       nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, pose):
        return self.embedding(pose)


PRECISIONS = {"fp16": torch.float16, "fp8_e4m3fn": torch.float8_e4m3fn}


class DownloadAndLoadControlNeXt:
    def loadmodel(self, precision):
        dtype = torch.float16
        unet = UNetSpatioTemporal().eval()
        controlnext = ControlNeXt().eval().to(dtype)
        unet_dtype = PRECISIONS[precision]  # BORN
        unet.to(unet_dtype)  # BORN
        return {"unet": unet, "controlnext": controlnext, "dtype": dtype}


class ControlNeXtSampler:
    @torch.no_grad()
    def process(self, pipeline, frames, poses, steps=3):
        dtype = pipeline["dtype"]
        image_embeddings = torch.randn(frames, 5, 12).to(dtype)
        cond = torch.randn(frames, 4, 8, 8).to(dtype)
        latents = torch.randn(frames, 4, 8, 8).to(dtype)
        control = pipeline["controlnext"](poses.to(dtype))
        for _ in range(steps):
            noise_pred = pipeline["unet"](torch.cat([latents, cond], dim=1), image_embeddings, control)
            latents = latents - 0.2 * noise_pred
        return latents


if __name__ == "__main__":
    torch.manual_seed(7)
    pipeline = DownloadAndLoadControlNeXt().loadmodel(precision="fp8_e4m3fn")  # BORN
    latents = ControlNeXtSampler().process(pipeline, frames=2, poses=torch.rand(2, 3, 8, 8))
    print("latents", tuple(latents.shape), "std", round(latents.float().std().item(), 3))
