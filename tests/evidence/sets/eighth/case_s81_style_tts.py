"""
title: a bf16 text-to-speech predictor fed with a style vector read from a voice file
expect: collision
thread: https://github.com/tenstorrent/tt-xla/issues/5328
fix_at: 54

Expectation, written first: the predictor was moved to bf16 but the voice pack is
built as float32, and only the phoneme part of the input is cast; the style goes straight
into the adaptive layer: mat1 and mat2 must have the same dtype, got Float and BFloat16.
BORN is where the voice pack is made float32 (the reader), where a dtype should be given.
"""
import torch
from torch import nn


def read_voice(name):
    """Stands for a .pt voice file with one row per utterance length."""
    gen = torch.Generator().manual_seed(len(name))
    rows = torch.randn(32, 24, generator=gen)
    return torch.as_tensor(rows, dtype=torch.float32)  # BORN


class AdaNorm(nn.Module):
    def __init__(self, style_dim, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, elementwise_affine=False)
        self.fc = nn.Linear(style_dim, 2 * channels)

    def forward(self, x, style):
        gamma, beta = self.fc(style).unsqueeze(1).chunk(2, dim=-1)  # COLLIDES
        return (1 + gamma) * self.norm(x) + beta


class DurationPredictor(nn.Module):
    def __init__(self, phonemes=60, channels=32, style_dim=24):
        super().__init__()
        self.embed = nn.Embedding(phonemes, channels)
        self.pre = nn.Linear(channels, channels)
        self.ada = AdaNorm(style_dim, channels)
        self.out = nn.Linear(channels, 1)

    def forward(self, ids, style):
        h = torch.tanh(self.pre(self.embed(ids)))
        h = self.ada(h, style)
        return nn.functional.softplus(self.out(h)).squeeze(-1)


class Pipeline:
    def __init__(self, model):
        self.model = model.eval()

    def __call__(self, text, voice):
        ids = torch.tensor([[ord(c) % 60 for c in text]])
        style = voice[len(text) % voice.shape[0]][None]
        with torch.no_grad():
            return self.model(ids, style)


def main():
    torch.manual_seed(1)
    model = DurationPredictor().to(torch.bfloat16)
    pipe = Pipeline(model)
    voice = read_voice("af_heart")
    for text in ("hello there", "good morning to all"):
        frames = pipe(text, voice)
        print(text, "frames", int(frames.float().sum().round()))


if __name__ == "__main__":
    main()
