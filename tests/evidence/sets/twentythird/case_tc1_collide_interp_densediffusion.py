"""
title: regional prompt masks cast to the fp8 storage dtype of the UNet cannot be interpolated
expect: collision
thread: https://github.com/huchenlei/ComfyUI_densediffusion/issues/20
fix_at:

Expectation, written first: the UNet stores its weights as float8 and reports that as its dtype. The node casts the region masks to the dtype of the
model, and nearest-exact interpolation has no float8 kernel. The cast of the masks to the storage dtype is wrong; doing the interpolation in a wider
dtype would do as well.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DenseDiffusionCond:
    embeds: torch.Tensor
    mask: torch.Tensor
    strength: float = 1.0


class CastLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class CrossAttention(nn.Module):
    def __init__(self, dim, context_dim):
        super().__init__()
        self.to_q = CastLinear(dim, dim)
        self.to_k = CastLinear(context_dim, dim)
        self.to_v = CastLinear(context_dim, dim)


class UNetPatcher:
    def __init__(self, attn, weight_dtype, manual_cast_dtype):
        self.attn = attn.to(weight_dtype)
        self.manual_cast_dtype = manual_cast_dtype

    def get_dtype(self):
        return self.attn.to_q.weight.dtype


class DenseDiffusionApply:
    def __init__(self, model):
        self.model = model

    def prepare_conds(self, conds):
        dtype = self.model.get_dtype()
        return [DenseDiffusionCond(c.embeds, c.mask.to(dtype), c.strength) for c in conds]  # BORN

    @staticmethod
    def calc_mask_cond(mask, latent_shape):
        height, width = latent_shape[-2:]
        m = F.interpolate(mask.unsqueeze(1), (height, width), mode="nearest-exact").flatten(1)  # BORN COLLIDES
        return m.unsqueeze(-1)

    @torch.no_grad()
    def apply(self, latent, conds):
        attn = self.model.attn
        x = latent.flatten(2).transpose(1, 2).to(self.model.manual_cast_dtype)
        q = attn.to_q(x)
        out = torch.zeros_like(x)
        total = torch.zeros_like(x[..., :1])
        for cond in self.prepare_conds(conds):
            m = self.calc_mask_cond(cond.mask, latent.shape).to(x.dtype) * cond.strength
            context = cond.embeds.to(x.dtype)
            k, v = attn.to_k(context), attn.to_v(context)
            out = out + m * F.scaled_dot_product_attention(q, k, v)
            total = total + m
        return out / total.clamp(min=1e-3)


def main():
    torch.manual_seed(1)
    model = UNetPatcher(CrossAttention(8, 12), torch.float8_e4m3fn, torch.bfloat16)
    left = torch.zeros(1, 32, 32)
    left[:, :, :16] = 1.0
    conds = [DenseDiffusionCond(torch.randn(1, 5, 12), left), DenseDiffusionCond(torch.randn(1, 5, 12), 1.0 - left, 0.8)]
    out = DenseDiffusionApply(model).apply(torch.randn(1, 8, 8, 8), conds)
    print("region attention", tuple(out.shape), float(out.float().std()))


if __name__ == "__main__":
    main()
