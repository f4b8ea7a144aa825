"""
title: fp16 MeshNet: the square inside GroupNorm overflows and channels of the segmentation go dark
expect: silent:overflow
thread: https://github.com/neuroneural/brainchop-cli/pull/56
measured: voxels per label [2744, 0, 0] | agreement with float64 labels 83.9%
widened: voxels per label [2304, 79, 361] | agreement with float64 labels 100.0%
innocent: voxels per label [2744, 0, 0] | agreement with float64 labels 83.9%
suspect: line 66, scanner values of 0..200 lose nothing that counts in half

Expectation, written first: the fp16 path stores every conv output as float16 and GroupNorm squares it in that dtype. Activations of a few
hundred fit in half, their squares do not; the mean of squares is inf, rsqrt gives zero, the channel is wiped out and the labels are
garbage. Taking the norm's input to float32 cures it. The half precision of the input volume is harmless.
"""
import torch
from torch import nn
import torch.nn.functional as F


class Conv3dHalf(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, 3, 3, 3) / (27 * cin) ** 0.5)
        self.dilation = dilation

    def forward(self, x):
        y = F.conv3d(x.float(), self.weight.float(), padding=self.dilation, dilation=self.dilation)
        return y.to(torch.float16)  # BORN


class GroupNorm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        flat = x.flatten(2)  # BORN
        mean = flat.mean(-1, keepdim=True)
        var = ((flat - mean) ** 2).mean(-1, keepdim=True)  # BORN
        out = (flat - mean) * torch.rsqrt(var + self.eps)
        out = out * self.weight[:, None] + self.bias[:, None]
        return out.view_as(x).to(torch.float16)


class MeshNet(nn.Module):
    def __init__(self, channels=6, classes=3):
        super().__init__()
        dils = [1, 2, 1]
        self.convs = nn.ModuleList(
            Conv3dHalf(1 if i == 0 else channels, channels, d) for i, d in enumerate(dils))
        self.norms = nn.ModuleList(GroupNorm(channels) for _ in dils)
        self.head = nn.Conv3d(channels, classes, 1)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.gelu(norm(conv(x)).float()).half()  # BORN
        return self.head(x.float())


def load_volume(seed, size=14):
    g = torch.Generator().manual_seed(seed)
    zz = torch.linspace(-1, 1, size)
    r = (zz[:, None, None] ** 2 + zz[None, :, None] ** 2 + zz[None, None, :] ** 2).sqrt()
    vol = (r < 0.8).float() * 90 + (r < 0.45).float() * 110 + 3 * torch.randn(size, size, size, generator=g)
    return vol[None, None].to(torch.float16)


def reference_labels(model, vol):
    x = vol.double()
    for conv, norm in zip(model.convs, model.norms):
        y = F.conv3d(x, conv.weight.double(), padding=conv.dilation, dilation=conv.dilation)
        x = F.gelu(F.instance_norm(y, eps=norm.eps))
    return F.conv3d(x, model.head.weight.double(), model.head.bias.double()).argmax(1)


torch.manual_seed(4)
model = MeshNet().eval()
with torch.no_grad():
    model.convs[0].weight.mul_(4.0)
    vol = load_volume(2)
    labels = model(vol).argmax(1)
    ref = reference_labels(model, vol)
print("voxels per label", torch.bincount(labels.flatten(), minlength=3).tolist())
print("agreement with float64 labels %.1f%%" % (100 * (labels == ref).float().mean()))
