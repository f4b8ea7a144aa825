"""
title: stroke prompts fail: "upsample_bilinear2d_channels_last" not implemented for 'Bool'
expect: collision
thread: https://github.com/UX-Decoder/Segment-Everything-Everywhere-All-At-Once/issues/34

Expectation, written first: the stroke drawn by the user is thresholded to a bool mask before it is resized. The bilinear
interpolation to the feature size has no kernel for bool and raises NotImplementedError.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class StrokeEncoder(nn.Module):
    def __init__(self, channels=3, dim=16):
        super().__init__()
        self.backbone = nn.Conv2d(channels, dim, 4, stride=4)
        self.mask_embed = nn.Linear(dim, dim)

    def forward(self, image):
        return self.backbone(image)

    def evaluate(self, features, stroke):
        weights = stroke.to(features.dtype)
        query = (features * weights).sum((2, 3)) / weights.sum((2, 3)).clamp(min=1)
        query = self.mask_embed(query)
        return torch.einsum("bc,bchw->bhw", query, features)


def draw_stroke(height, width):
    canvas = np.zeros((height, width, 3), dtype=np.uint8)
    for step in range(10, 40):
        canvas[step:step + 3, step:step + 3] = 255
    return canvas


def load_prompt(stroke_image):
    mask_ori = torch.from_numpy(stroke_image[:, :, 0].copy())
    mask_ori = mask_ori[None, None] > 0  # BORN
    return mask_ori


def interactive_infer_image(model, image, stroke_image, tasks):
    image = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255.0
    features = model(image)
    height, width = features.shape[-2:]
    data = {"image": image, "height": height, "width": width}
    if "Stroke" in tasks:
        mask_ori = load_prompt(stroke_image)
        resized = F.interpolate(mask_ori, (height, width), mode="bilinear", align_corners=True)  # BORN COLLIDES
        data["stroke"] = resized > 0
    logits = model.evaluate(features, data["stroke"])
    full = F.interpolate(logits[:, None], image.shape[-2:], mode="bilinear", align_corners=False)
    return (full > full.mean()).squeeze()


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    model = StrokeEncoder().eval()
    with torch.no_grad():
        mask = interactive_infer_image(model, image, draw_stroke(64, 64), ["Stroke"])
    print("selected pixels", int(mask.sum()))


if __name__ == "__main__":
    main()
