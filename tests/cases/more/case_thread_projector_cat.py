"""
title: image features of a projector that was loaded in float32 are concatenated with bfloat16 token embeddings
expect: collision
fix_at: 36, 37

LLaVA #785: the projector is float32, cat promotes, and the first q_proj of the bfloat16 language model refuses.
"""
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.o_proj(torch.tanh(self.q_proj(x)))  # COLLIDES


class Language(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(50, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))


class Llava(nn.Module):
    def __init__(self, language, width=16):
        super().__init__()
        self.language = language
        self.mm_projector = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, width))  # BORN

    def forward(self, pixels, ids):
        image = self.mm_projector(pixels.float())
        tokens = self.language.embed_tokens(ids)
        x = torch.cat([image, tokens], dim=1)
        for layer in self.language.layers:
            x = layer(x)
        return x


torch.manual_seed(0)
language = Language().to(torch.bfloat16)
model = Llava(language)
print(model(torch.randn(1, 3, 8).bfloat16(), torch.randint(0, 50, (1, 4))).shape)
