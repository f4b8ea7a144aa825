"""
title: audio tagging keeps its waveforms as int16 on disk and turns them back to float32 per batch
expect: clean
thread: https://github.com/qiuqiangkong/audioset_tagging_cnn/issues/37
measured: loss 0.51 peak 0.780
suspect: 21 deliberate: sixteen-bit PCM holds a clipped waveform to 1.5e-5, values are clipped and rounded first

Expectation, written first: waveforms in [-1, 1] are clipped, scaled by 32767, rounded and stored as int16 to halve
the archive; the sampler divides them back to float32. The rounding of 1.5e-5 is the format's own, and the log-mel
features and scores of the tagger are those of the float32 archive to two digits.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def float32_to_int16(x):
    x = torch.clamp(x, min=-1.0, max=1.0)
    return torch.round(x * 32767.0).to(torch.int16)


def int16_to_float32(x):
    return x.to(torch.float32) / 32767.0


class WaveformArchive:
    def __init__(self, clips, labels):
        self.waveform = torch.stack([float32_to_int16(clip) for clip in clips])
        self.target = torch.tensor(labels, dtype=torch.bool)

    def nbytes(self):
        return self.waveform.numel() * self.waveform.element_size()

    def __getitem__(self, indexes):
        return {"waveform": int16_to_float32(self.waveform[indexes]), "target": self.target[indexes].float()}


class LogmelFilterBank(nn.Module):
    def __init__(self, sr=8000, n_fft=256, n_mels=20, amin=1e-5):
        super().__init__()
        self.n_fft, self.amin = n_fft, amin
        freqs = torch.linspace(0, sr / 2, n_fft // 2 + 1)
        points = 700 * (10 ** (torch.linspace(0, 2595 * math.log10(1 + sr / 1400), n_mels + 2) / 2595) - 1)
        up = (freqs[:, None] - points[:-2]) / (points[1:-1] - points[:-2])
        down = (points[2:] - freqs[:, None]) / (points[2:] - points[1:-1])
        self.register_buffer("melW", torch.clamp(torch.minimum(up, down), min=0))
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, x):
        frames = x.unfold(-1, self.n_fft, self.n_fft // 2) * self.window
        power = torch.fft.rfft(frames).abs().square()
        return 10.0 * torch.log10(torch.clamp(power @ self.melW, min=self.amin))


class Cnn6(nn.Module):
    def __init__(self, classes, n_mels=20):
        super().__init__()
        self.logmel = LogmelFilterBank(n_mels=n_mels)
        self.conv1 = nn.Conv1d(n_mels, 24, 5, padding=2)
        self.fc_audioset = nn.Linear(24, classes)

    def forward(self, waveform):
        x = self.logmel(waveform).transpose(1, 2) / 40.0
        x = F.relu(self.conv1(x))
        return self.fc_audioset(x.mean(-1) + x.amax(-1))


def synth(label, t):
    tone = sum(torch.sin(2 * math.pi * 200 * (2 + 3 * c) * t) for c, on in enumerate(label) if on)
    return 0.2 * tone + 0.05 * torch.randn_like(t)


if __name__ == "__main__":
    torch.manual_seed(0)
    labels = torch.randint(0, 2, (24, 3)).tolist()
    t = torch.arange(4000) / 8000.0
    archive = WaveformArchive([synth(l, t) for l in labels], labels)
    model = Cnn6(classes=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(12):
        batch = archive[torch.arange(step % 2, 24, 2)]
        loss = F.binary_cross_entropy_with_logits(model(batch["waveform"]), batch["target"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", f"{loss.item():.2f}", "peak", f"{archive[torch.arange(24)]['waveform'].abs().max().item():.3f}")
