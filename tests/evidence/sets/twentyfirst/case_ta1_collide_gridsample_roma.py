"""
title: local correlation of a dense matcher: half coordinates against bfloat16 features in grid_sample
expect: collision
thread: https://github.com/Parskatt/RoMa/issues/2
fix_at: none

Expectation, written first: the decoder runs with amp_dtype bfloat16, but the window coordinates are cast with a
hard-wired .half() that was written for the fp16 setting. grid_sample wants input and grid in one dtype and raises.
The cast must follow the features, or both are brought to float32 at the call.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def local_correlation(feature0, feature1, local_radius, flow, sample_mode="bilinear"):
    r = local_radius
    num_neighbours = (2 * r + 1) ** 2
    B, c, h, w = feature0.size()
    corr = torch.empty((B, num_neighbours, h, w), device=feature0.device, dtype=feature0.dtype)
    coords = flow.permute(0, 2, 3, 1)
    offsets = torch.meshgrid(
        torch.linspace(-2 * r / h, 2 * r / h, 2 * r + 1, device=feature0.device),
        torch.linspace(-2 * r / w, 2 * r / w, 2 * r + 1, device=feature0.device),
        indexing="ij",
    )
    local_window = torch.stack((offsets[1], offsets[0]), dim=-1).reshape(num_neighbours, 2)
    for _ in range(B):
        window = coords[_, :, :, None] + local_window[None, None]
        window_coords = window.reshape(1, h, w * num_neighbours, 2).half()  # BORN
        window_feature = F.grid_sample(feature1[_ : _ + 1], window_coords, mode=sample_mode, align_corners=False)  # BORN COLLIDES
        window_feature = window_feature.reshape(c, h, w, num_neighbours)
        corr[_] = (feature0[_, ..., None] / math.sqrt(c) * window_feature).sum(dim=0).permute(2, 0, 1)
    return corr


class ConvRefiner(nn.Module):
    def __init__(self, dim, local_radius=1, amp_dtype=torch.bfloat16):
        super().__init__()
        self.local_radius = local_radius
        self.amp_dtype = amp_dtype
        self.proj = nn.Conv2d(3, dim, 3, padding=1)
        self.out = nn.Conv2d(2 * dim + (2 * local_radius + 1) ** 2, 3, 1)
        self.to(amp_dtype)

    def forward(self, im0, im1, flow):
        x = self.proj(im0.to(self.amp_dtype))
        y = self.proj(im1.to(self.amp_dtype))
        corr = local_correlation(x, y, self.local_radius, flow)
        delta = self.out(torch.cat((x, y, corr), dim=1)).float()
        return flow + delta[:, :2] * 0.01, delta[:, 2:].sigmoid()


def identity_flow(b, h, w):
    ys = torch.linspace(-1 + 1 / h, 1 - 1 / h, h)
    xs = torch.linspace(-1 + 1 / w, 1 - 1 / w, w)
    gy, gx = torch.meshgrid(ys, xs, indexing="ij")
    return torch.stack((gx, gy))[None].expand(b, 2, h, w)


if __name__ == "__main__":
    torch.manual_seed(3)
    refiner = ConvRefiner(dim=8).eval()
    with torch.inference_mode():
        flow, certainty = refiner(torch.rand(2, 3, 12, 12), torch.rand(2, 3, 12, 12), identity_flow(2, 12, 12))
    print("certainty", f"{certainty.mean().item():.3f}", "flow", tuple(flow.shape))
