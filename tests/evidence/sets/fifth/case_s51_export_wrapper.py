"""
title: an export wrapper normalises images with float32 constants, the classifier it wraps is bfloat16
expect: collision
fix_at: 48, 49, 52

After https://github.com/pytorch/executorch/pull/18380 and https://github.com/mikel-brostrom/boxmot/issues/2230.
Right: the constants follow the wrapped model.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(115)
STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.second(F.silu(self.first(self.norm(x))))


class Classifier(nn.Module):
    def __init__(self, width=16, classes=4):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.body = nn.Sequential(Residual(width), Residual(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(self.patch(x)).mean((2, 3)))  # COLLIDES


class Deployed(nn.Module):
    """Takes raw bytes, gives probabilities: what the phone calls."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("statistics", torch.tensor(STATISTICS)[:, None, :, None, None])  # BORN

    def forward(self, images):
        mean, std = self.statistics
        x = (images.to(mean.dtype) / 255 - mean) / std
        return self.scores(x)

    def scores(self, x):
        logits = self.model(x)
        return logits.float().softmax(-1)


def finetune(model, steps=2):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = F.cross_entropy(model(torch.randn(4, 3, 16, 16)), torch.randint(0, 4, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def export(model, size=16):
    example = torch.randint(0, 256, (1, 3, size, size), dtype=torch.uint8)
    deployed = Deployed(model.to(torch.bfloat16)).eval()
    program = torch.export.export(deployed, (example,), strict=False)
    return program.module()(example)


print([round(p, 3) for p in export(finetune(Classifier())).flatten().tolist()])
