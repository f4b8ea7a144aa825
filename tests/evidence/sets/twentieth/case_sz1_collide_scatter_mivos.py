"""
title: mask propagation with mixed precision stops where the top-k affinity is scattered back
expect: collision
thread: https://github.com/hkchengrex/MiVOS/issues/19

Expectation, written first: under autocast the affinity comes out of `bmm` in bf16. The Gaussian kernel is built in float32 and promotes the
weighted exponentials, so the top-k values are float32, and they are scattered back into the bf16 affinity. `scatter_` wants one dtype. A cast
at the scatter, at the weighting or a kernel in the affinity's dtype repairs it.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_gaussian(y_idx, x_idx, height, width, sigma=7.0):
    yv, xv = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    yv, xv = yv.reshape(1, -1).float(), xv.reshape(1, -1).float()  # BORN
    return torch.exp(-((yv - y_idx[:, None]) ** 2 + (xv - x_idx[:, None]) ** 2) / (2 * sigma ** 2))


def softmax_w_g_top(x, top=None, gauss=None):
    if gauss is not None:
        maxes = torch.max(x, dim=1, keepdim=True)[0]
        x_exp = torch.exp(x - maxes) * gauss  # BORN
        x_exp, indices = torch.topk(x_exp, k=top, dim=1)
    else:
        values, indices = torch.topk(x, k=top, dim=1)
        x_exp = torch.exp(values - values[:, :1])
    x_exp = x_exp / x_exp.sum(dim=1, keepdim=True)
    return x.zero_().scatter_(1, indices, x_exp)  # BORN COLLIDES


class EvalMemoryReader(nn.Module):
    def __init__(self, top_k=12, km=5.6):
        super().__init__()
        self.top_k, self.km = top_k, km

    def get_affinity(self, mk, qk):
        b, ck, t, h, w = mk.shape
        mk, qk = mk.flatten(2), qk.flatten(2)
        affinity = torch.bmm((mk / math.sqrt(ck)).transpose(1, 2), qk)
        if self.km is None:
            return softmax_w_g_top(affinity, top=self.top_k)
        argmax_idx = affinity[0].max(dim=0)[1]
        y_idx, x_idx = (argmax_idx // w) % h, argmax_idx % w
        gauss = make_gaussian(y_idx, x_idx, h, w, sigma=self.km)
        return softmax_w_g_top(affinity, top=self.top_k, gauss=gauss.t().repeat(t, 1)[None])

    def readout(self, affinity, mv, qv):
        b, cv, t, h, w = mv.shape
        mem = torch.bmm(mv.flatten(2), affinity).view(b, cv, h, w)
        return torch.cat([mem, qv], dim=1)


class PropagationNetwork(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.key_encoder = nn.Conv2d(3, dim, 3, stride=4, padding=1)
        self.value_encoder = nn.Conv2d(4, dim, 3, stride=4, padding=1)
        self.memory = EvalMemoryReader()
        self.decoder = nn.Conv2d(2 * dim, 1, 3, padding=1)

    def forward(self, frames, masks, query):
        mk = torch.stack([self.key_encoder(f) for f in frames], dim=2)
        mv = torch.stack([self.value_encoder(torch.cat([f, m], 1)) for f, m in zip(frames, masks)], dim=2)
        qk = self.key_encoder(query)
        out = self.decoder(self.memory.readout(self.memory.get_affinity(mk, qk), mv, qk))
        return torch.sigmoid(F.interpolate(out.float(), scale_factor=4))


@torch.no_grad()
def propagate(net, video, first_mask, amp=True):
    masks = [first_mask]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        for ti in range(1, len(video)):
            masks.append(net(video[:ti], masks, video[ti]))
    return masks


if __name__ == "__main__":
    torch.manual_seed(4)
    video = [torch.rand(1, 3, 32, 32) for _ in range(4)]
    masks = propagate(PropagationNetwork().eval(), video, (torch.rand(1, 1, 32, 32) > 0.5).float())
    print("foreground", [round(m.mean().item(), 3) for m in masks])
