"""
title: a speech encoder set to bf16 while the feature front end stays in float32
expect: collision
thread: https://github.com/modelscope/FunASR/issues/2092
fix_at: 65

Expectation, written first: the switch bf16=True turns the encoder to bfloat16 but
the low-frame-rate features are float32, and the first thing they meet is a LayerNorm whose
parameters are bf16: a mixed dtype refusal of the norm on CPU.
BORN is the float32 of the front end; features in the dtype of the encoder mend it (a cast
where they enter the encoder as well).
"""
import torch
from torch import nn


class FrontEnd:
    """Log energies of bands, seven frames stacked with a stride of six."""

    def __init__(self, bands=10, stack=7, stride=6):
        self.bands, self.stack, self.stride = bands, stack, stride

    def __call__(self, wave):
        frames = wave.unfold(0, 80, 40)
        power = torch.fft.rfft(frames).abs().square()[:, 1:41]
        bands = power.reshape(len(frames), self.bands, -1).mean(-1)
        feats = torch.log(bands + 1e-6)
        stacked = feats.unfold(0, self.stack, self.stride).flatten(1)
        return stacked.to(torch.float32)  # BORN


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.ff(self.norm(x))  # COLLIDES


class Encoder(nn.Module):
    def __init__(self, width=70, blocks=2, tokens=30):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.out = nn.Linear(width, tokens)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def build(bf16):
    torch.manual_seed(2)
    encoder = Encoder().eval()
    return encoder.to(torch.bfloat16) if bf16 else encoder


def main():
    t = torch.arange(8000) / 8000.0
    wave = torch.sin(2 * torch.pi * 300 * t) * torch.sin(2 * torch.pi * 3 * t)
    encoder = build(bf16=True)
    with torch.no_grad():
        tokens = encoder(FrontEnd()(wave)).argmax(-1)
    print("tokens", tokens[:8].tolist())


if __name__ == "__main__":
    main()
