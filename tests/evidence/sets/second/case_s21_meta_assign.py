"""
title: a backbone that was exported in float16 is loaded with assign=True into a float32 segmenter
expect: collision
fix_at: 45

After mosaicml/llm-foundry#916 and huggingface/accelerate#920 (an assigning load takes the file's dtype over, where the
copying load would have kept the module's). Right: cast the tensors of the file when loading (or do not assign).
"""
import io

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(13)


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stage = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)

    def forward(self, x):
        low = F.relu(self.stem(x))  # COLLIDES
        return low, F.relu(self.stage(low))


class Segmenter(nn.Module):
    def __init__(self, backbone, width=8, classes=3):
        super().__init__()
        self.backbone = backbone
        self.lateral = nn.Conv2d(2 * width, width, 1)
        self.classify = nn.Conv2d(width, classes, 1)

    def forward(self, images):
        low, high = self.backbone(images)
        high = F.interpolate(self.lateral(high), size=low.shape[-2:], mode="bilinear", align_corners=False)
        return self.classify(low + high)


def export(backbone):
    """For the shelf: half the size."""
    file = io.BytesIO()
    torch.save({name: tensor.half() for name, tensor in backbone.state_dict().items()}, file)
    file.seek(0)
    return file


def pretrained(file):
    with torch.device("meta"):
        backbone = Backbone()
    weights = torch.load(file, weights_only=True)
    backbone.load_state_dict(weights, assign=True)  # BORN
    return backbone


def main():
    file = export(Backbone())
    model = Segmenter(pretrained(file))
    for parameter in model.backbone.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(3):
        images = torch.rand(2, 3, 8, 8)
        target = (images.mean(1) * 3).long().clamp(max=2)
        loss = F.cross_entropy(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 3))


main()
