"""
title: a voice detector squares 16-bit samples as they come from the file, loud frames wrap
expect: silent:overflow|precision-loss
fix_at: 32

After https://github.com/ming024/FastSpeech2/issues/34 and https://github.com/ming024/FastSpeech2/issues/135.
Right: the samples become floats before they are squared.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(201)
RATE, FRAME = 8000, 160


def recording(seconds=2):
    """Speech-like bursts at full level over quiet noise, as 16-bit samples, with the truth per frame."""
    count = RATE * seconds
    speech = (torch.arange(count // FRAME) // 10) % 2 == 1
    envelope = speech.float().repeat_interleave(FRAME)
    tone = torch.sin(torch.arange(count) * 0.17 + torch.rand(()))
    wave = 0.7 * envelope * tone + 0.004 * torch.randn(count)
    return (wave * 32767).round().clamp(-32768, 32767).to(torch.int16), speech


class Frames:
    def __init__(self, size=FRAME):
        self.size = size

    def cut(self, samples):
        return samples.view(-1, self.size)

    def level(self, samples):
        frames = self.cut(samples)
        power = (frames * frames).float().mean(1)  # BORN
        return torch.log10(power.abs() + 1.0)

    def crossings(self, samples):
        frames = self.cut(samples).float()
        return (frames[:, 1:] * frames[:, :-1] < 0).float().mean(1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 1)

    def forward(self, level, crossings):
        return self.out(torch.stack([level / 10, crossings], dim=-1))[:, 0]


frames, detector = Frames(), Detector()
optimizer = torch.optim.Adam(detector.parameters(), lr=0.05)
for step in range(60):
    samples, speech = recording()
    loss = F.binary_cross_entropy_with_logits(detector(frames.level(samples), frames.crossings(samples)), speech.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
samples, speech = recording()
level = frames.level(samples)
truth = torch.log10(samples.double().view(-1, FRAME).pow(2).mean(1) + 1)
print("level error of speech frames", round((level - truth)[speech].abs().mean().item(), 3), "loss", round(loss.item(), 4))
