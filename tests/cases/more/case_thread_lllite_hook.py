"""
title: a small control network whose forward replaced a Linear's is left in float32 beside a float16 UNet
expect: collision
fix_at: 17, 27, 28, 29, 52

kohya's ControlNet-LLLite in ComfyUI (#10, #105): its layers are made in float32, the UNet is float16.
"""
import torch
from torch import nn


class LLLite(nn.Module):
    def __init__(self, org, name):
        super().__init__()
        self.name = name
        self.down = nn.Sequential(nn.Linear(org.in_features, 4), nn.ReLU())  # BORN
        self.up = nn.Linear(8, org.in_features)
        self.org = [org]
        self.cond = None

    def apply_to(self):
        self.org_forward = self.org[0].forward
        self.org[0].forward = self.forward

    def forward(self, x):
        cx = self.cond.expand(x.shape[0], x.shape[1], 4)
        h = torch.cat([cx, self.down(x)], dim=-1)  # COLLIDES
        return self.org_forward(x + self.up(h))


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.inp, self.mid, self.out = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 8)

    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.inp(x)))))


class ControlNet(nn.Module):
    def __init__(self, unet):
        super().__init__()
        self.modules_ = [LLLite(m, n) for n, m in unet.named_modules() if n == "mid"]
        for module in self.modules_:
            module.apply_to()


torch.manual_seed(0)
unet = UNet().half().eval()
control = ControlNet(unet)
for module in control.modules_:
    module.cond = torch.zeros(1, 1, 4).half()
with torch.no_grad():
    print(unet(torch.randn(2, 3, 8).half()).shape)
