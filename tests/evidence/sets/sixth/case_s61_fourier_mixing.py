"""
title: an FNet text encoder is cast to bfloat16 with the whole retriever, its Fourier mixing knows no bfloat16
expect: collision
needs: transformers

After https://github.com/huggingface/transformers/pull/13752, https://github.com/facebookresearch/xformers/issues/256 and
https://github.com/pytorch/pytorch/issues/117844.
Right: the text encoder stays float32, only the other tower is cast.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import FNetConfig, FNetModel

torch.manual_seed(611)


@dataclass
class Settings:
    dim: int = 32
    dtype: torch.dtype = torch.bfloat16


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patches, self.out = nn.Conv2d(3, dim, 4, stride=4), nn.Linear(dim, dim)

    def forward(self, images):
        return self.out(F.gelu(self.patches(images)).flatten(2).mean(-1))


class Retriever(nn.Module):
    def __init__(self, settings):
        super().__init__()
        config = FNetConfig(vocab_size=60, hidden_size=settings.dim, num_hidden_layers=2, intermediate_size=64, max_position_embeddings=32,
                            hidden_dropout_prob=0.0, use_tpu_fourier_optimizations=False)
        self.text, self.image = FNetModel(config), ImageTower(settings.dim)

    def forward(self, ids, images):
        text = self.text(ids).last_hidden_state.mean(1)  # COLLIDES
        image = self.image(images)
        return F.normalize(text.float(), dim=-1) @ F.normalize(image.float(), dim=-1).t()


def deploy(model, settings):
    model.eval().requires_grad_(False)
    return model.to(settings.dtype)  # BORN


def batch(settings, count=4):
    return torch.randint(4, 60, (count, 10)), torch.rand(count, 3, 16, 16).to(settings.dtype)


settings = Settings()
model = deploy(Retriever(settings), settings)
scores = model(*batch(settings))
print("scores", tuple(scores.shape), scores.dtype)
