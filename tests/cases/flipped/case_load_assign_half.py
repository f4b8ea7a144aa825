"""
title: patches leave an autocast region in bfloat16 and meet a float32 projector
expect: collision
fix_at: 30

The checkpoint is copied into float32 weights, as every weight is. The region ends before the projector, which nobody
tells that its input was computed in bfloat16.
"""
import io

import torch
from torch import nn


def published(**shapes):
    file = io.BytesIO()
    torch.save({name: torch.randn(shape, dtype=torch.half) * 0.1 for name, shape in shapes.items()}, file)
    file.seek(0)
    return file


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU())
        self.projector = nn.Linear(8, 16, bias=False)
        self.language = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, signal):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            patches = self.vision(signal).transpose(1, 2)  # BORN
        tokens = self.projector(patches)  # COLLIDES
        return self.language(tokens)


def restore(module, file):
    missing = module.load_state_dict(torch.load(file, map_location="cpu"))
    assert not missing.missing_keys and not missing.unexpected_keys
    return module


torch.manual_seed(0)
captioner = Captioner()
restore(captioner.projector, published(weight=(16, 8)))
print(captioner(torch.randn(2, 3, 10)).shape)
