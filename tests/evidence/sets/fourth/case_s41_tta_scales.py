"""
title: test-time augmentation rescales the image in float32 for a detector running in half
expect: collision
fix_at: 33, 51

After https://github.com/meituan/YOLOv6/issues/418 and https://github.com/mrzaizai2k/License-Plate-Recognition-YOLOv7-and-CNN/issues/5:
the warm-up and the plain pass are fine, the augmented pass is not.
Right: return the rescaled image in the dtype it came in.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(10)


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1)

    def forward(self, x):
        return F.silu(self.conv(x))  # COLLIDES


def scale_img(img, ratio, stride=8):
    if ratio == 1.0:
        return img
    h, w = img.shape[2:]
    size = (int(h * ratio), int(w * ratio))
    img = F.interpolate(img.float(), size=size, mode="bilinear", align_corners=False)  # BORN
    pad = [(-s) % stride for s in size]
    return F.pad(img, [0, pad[1], 0, pad[0]], value=0.447)


class Detector(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(ConvBlock(3, 8, 2), ConvBlock(8, 16, 2), ConvBlock(16, 16, 2))
        self.head = nn.Conv2d(16, 5 + classes, 1)

    def forward_once(self, x):
        y = self.head(self.backbone(x))
        return y.flatten(2).transpose(1, 2).sigmoid()

    def forward(self, x, augment=False):
        if not augment:
            return self.forward_once(x)
        outputs = []
        for ratio, flip in ((1.0, False), (0.83, True), (0.67, False)):
            view = scale_img(x.flip(3) if flip else x, ratio)
            outputs.append(self.forward_once(view))
        return torch.cat(outputs, dim=1)


def preprocess(frames, half):
    img = torch.stack(frames).permute(0, 3, 1, 2).contiguous()
    img = img.half() if half else img.float()
    return img / 255


half = True
model = Detector().eval()
if half:
    model.half()
with torch.no_grad():
    model(torch.zeros(1, 3, 32, 32, dtype=next(model.parameters()).dtype))
    frames = [torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8) for _ in range(2)]
    img = preprocess(frames, half)
    print("plain", model(img).shape)
    print("augmented", model(img, augment=True).shape)
