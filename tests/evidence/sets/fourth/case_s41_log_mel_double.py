"""
title: the log-mel front end is written in numpy and yields float64 for a float32 Whisper
expect: collision
needs: transformers
fix_at: 32, 36, 55

After https://github.com/embeddings-benchmark/mteb/pull/4990 and https://github.com/kadirnar/whisper-plus/issues/58.
Right: hand the features over as float32.
"""
import numpy as np
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)


class FrontEnd:
    def __init__(self, rate=16000, n_fft=64, hop=32, mels=8):
        self.n_fft, self.hop = n_fft, hop
        self.window = np.hanning(n_fft)
        centres = np.linspace(0, n_fft // 2, mels + 2)
        bins = np.arange(n_fft // 2 + 1)
        rise = (bins[None] - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
        fall = (centres[2:, None] - bins[None]) / (centres[2:] - centres[1:-1])[:, None]
        self.filters = np.maximum(0, np.minimum(rise, fall))

    def __call__(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.n_fft)[:: self.hop]
        power = np.abs(np.fft.rfft(frames * self.window)) ** 2
        logs = np.log10(np.maximum(self.filters @ power.T, 1e-10))
        logs = np.maximum(logs, logs.max() - 8.0)
        return (logs + 4.0) / 4.0


def pad_or_trim(features, length=64):
    out = np.zeros((features.shape[0], length))
    out[:, : features.shape[1]] = features[:, :length]
    return out


def collate(waves, front_end):
    features = [pad_or_trim(front_end(w)) for w in waves]
    return torch.from_numpy(np.stack(features))  # BORN


config = WhisperConfig(vocab_size=60, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                       decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=32,
                       max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                       suppress_tokens=None, begin_suppress_tokens=None)
model = WhisperForConditionalGeneration(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
front_end = FrontEnd()
for step in range(3):
    waves = [np.sin(np.arange(2000) * f / 50).astype(np.float32) for f in (1.0, 2.5)]
    batch = collate(waves, front_end)
    labels = torch.randint(3, 60, (2, 6))
    loss = model(input_features=batch, labels=labels).loss  # COLLIDES
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
