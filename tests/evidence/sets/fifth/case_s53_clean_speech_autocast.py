"""
title: a recogniser under bfloat16 autocast: spectra in float32 before it, CTC in float32 after it, integer lengths
expect: clean

The right way round of https://github.com/thu-spmi/CAT/issues/22 and https://github.com/vadimkantorov/convasr/pull/73.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(307)


class Spectrum(nn.Module):
    """16-bit samples to a log spectrum; all of it in float32."""

    def __init__(self, size=64, hop=32):
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, samples):
        wave = samples.float() / 32768
        power = torch.stft(wave, self.size, self.hop, window=self.window, return_complex=True).abs().square()
        return power.clamp(min=1e-7).log10().transpose(1, 2)


class Recogniser(nn.Module):
    def __init__(self, bins=33, dim=32, symbols=6):
        super().__init__()
        self.norm = nn.LayerNorm(bins)
        self.conv = nn.Conv1d(bins, dim, 3, stride=2, padding=1)
        self.rnn = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, symbols)

    def lengths(self, counts):
        return (counts - 1) // 2 + 1

    def forward(self, x, counts):
        x = F.relu(self.conv(self.norm(x).transpose(1, 2))).transpose(1, 2)
        return self.out(F.gelu(self.rnn(x))), self.lengths(counts)


def utterances(batch, letters=3, span=512):
    """One tone per letter."""
    words = torch.randint(1, 6, (batch, letters))
    time = torch.arange(span)
    tones = torch.sin(words[..., None] * 0.25 * time)
    wave = (8000 * tones.flatten(1) + 200 * torch.randn(batch, letters * span)).round().to(torch.int16)
    return wave, words


spectrum, model = Spectrum(), Recogniser()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(80):
    samples, words = utterances(8)
    x = spectrum(samples)
    counts = torch.full((len(x),), x.shape[1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, lengths = model(x, counts)
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(log_probs, words, lengths, torch.full((len(x),), 3), zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("loss", round(loss.item(), 3))
