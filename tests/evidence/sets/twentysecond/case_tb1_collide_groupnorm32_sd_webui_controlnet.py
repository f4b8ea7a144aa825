"""
title: half control model on the CPU: "mixed dtype (CPU): expect parameter to have scalar type of Float" in GroupNorm
expect: collision
thread: https://github.com/Mikubill/sd-webui-controlnet/issues/2147

Expectation, written first: the whole control model, its norms included, is cast to float16 on loading. GroupNorm32 raises
its input to float32 and calls the norm with the half weight, a mix that the CPU kernel refuses.
"""
import torch
from torch import nn


class GroupNorm32(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)  # BORN COLLIDES


def normalization(channels):
    return GroupNorm32(4, channels)


class ResBlock(nn.Module):
    def __init__(self, channels, emb_channels):
        super().__init__()
        self.in_layers = nn.Sequential(normalization(channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb_channels, channels))
        self.out_conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, emb):
        h = self.in_layers(x)
        h = h + self.emb_layers(emb)[:, :, None, None]
        return x + self.out_conv(torch.nn.functional.silu(h))


class ControlNet(nn.Module):
    def __init__(self, model_channels=8):
        super().__init__()
        self.time_embed = nn.Linear(model_channels, 16)
        self.input_hint_block = nn.Conv2d(3, model_channels, 3, padding=1)
        self.input_block = nn.Conv2d(4, model_channels, 3, padding=1)
        self.res = ResBlock(model_channels, 16)
        self.zero_conv = nn.Conv2d(model_channels, model_channels, 1)
        self.model_channels = model_channels

    def timestep_embedding(self, timesteps):
        freqs = torch.exp(-torch.arange(self.model_channels // 2) / 2.0)
        args = timesteps[:, None].float() * freqs[None]
        return torch.cat([args.cos(), args.sin()], dim=-1)

    def forward(self, x, hint, timesteps):
        emb = self.time_embed(self.timestep_embedding(timesteps).type(x.dtype))
        h = self.input_block(x) + self.input_hint_block(hint)
        return [self.zero_conv(self.res(h, emb))]


class PlugableControlModel:
    def __init__(self, config, dtype_unet):
        self.dtype = dtype_unet
        self.control_model = ControlNet(**config)
        self.control_model.to(dtype=self.dtype)  # BORN
        self.control_model.eval()

    @torch.no_grad()
    def __call__(self, x, hint, timesteps, weight=1.0):
        outs = self.control_model(x.to(self.dtype), hint.to(self.dtype), timesteps)
        return [o.float() * weight for o in outs]


def main():
    torch.manual_seed(0)
    model = PlugableControlModel({"model_channels": 8}, dtype_unet=torch.float16)  # BORN
    x = torch.randn(2, 4, 8, 8)
    hint = torch.rand(2, 3, 8, 8)
    for step in (900, 500):
        control = model(x, hint, torch.full((2,), step))
        x = x + 0.01 * control[0][:, :4]
        print(f"step {step} control norm {control[0].norm().item():.4f}")


if __name__ == "__main__":
    main()
