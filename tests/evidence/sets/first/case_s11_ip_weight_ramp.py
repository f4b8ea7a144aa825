"""
title: a per-token ramp of image-prompt weights widens the value alone
expect: collision
fix_at: 23, 41

After cubiq/ComfyUI_IPAdapter_plus#395 and #183 ("Expected query, key, and value to have the same dtype"). A scalar weight never
changed a dtype; the "ease out" weight is a float32 tensor from torch.linspace and turns the image values into float32.
Right change: the ramp in the image tokens' dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn


class WeightSchedule:
    def __init__(self, kind="linear", strength=0.8):
        self.kind, self.strength = kind, strength

    def for_tokens(self, n):
        if self.kind == "linear":
            return self.strength
        ramp = torch.linspace(1.0, 0.2, n)  # BORN
        return (self.strength * ramp).view(1, n, 1)


class DecoupledAttention(nn.Module):
    def __init__(self, width=16, context=12, heads=2):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k, self.to_v = nn.Linear(context, width, bias=False), nn.Linear(context, width, bias=False)
        self.to_k_ip, self.to_v_ip = nn.Linear(context, width, bias=False), nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, text, image, weight):
        q = self.split(self.to_q(x))
        out = F.scaled_dot_product_attention(q, self.split(self.to_k(text)), self.split(self.to_v(text)))
        values = self.to_v_ip(image) * weight
        out = out + F.scaled_dot_product_attention(q, self.split(self.to_k_ip(image)), self.split(values))  # COLLIDES
        return self.out(out.transpose(1, 2).flatten(-2))


class Denoiser(nn.Module):
    def __init__(self, schedule, depth=2):
        super().__init__()
        self.schedule = schedule
        self.layers = nn.ModuleList(DecoupledAttention() for _ in range(depth))

    def forward(self, x, text, image):
        weight = self.schedule.for_tokens(image.shape[1])
        for layer in self.layers:
            x = x + layer(x, text, image, weight)
        return x


torch.manual_seed(0)
x, text, image = (torch.randn(1, n, w).half() for n, w in ((6, 16), (5, 12), (4, 12)))
with torch.no_grad():
    for kind in ("linear", "ease out"):
        print(kind, Denoiser(WeightSchedule(kind)).half().eval()(x, text, image).dtype)
