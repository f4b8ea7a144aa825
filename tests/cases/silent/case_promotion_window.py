"""
title: an analysis window in float32 makes the frames, and their correlations, float32
expect: silent:promotion

torch's windows are float32 unless told otherwise.
"""
import torch
from torch import nn


class Pitch(nn.Module):
    def __init__(self, size, hop):
        super().__init__()
        self.size, self.hop = size, hop
        self.weigh = nn.Conv1d(1, 1, 5, padding=2, bias=False)
        self.head = nn.Linear(size, 3)

    def forward(self, wave):
        frames = self.weigh(wave[:, None])[:, 0].unfold(-1, self.size, self.hop)
        frames = frames * torch.hann_window(self.size)  # BORN
        alike = (frames @ frames.mT).softmax(dim=-1)
        return self.head((alike @ frames).to(self.head.weight.dtype))


torch.manual_seed(0)
model = Pitch(32, 16).bfloat16()
time = torch.arange(512) / 64
with torch.no_grad():
    out = model(torch.sin(time)[None].bfloat16())
print(out.shape, out.dtype)