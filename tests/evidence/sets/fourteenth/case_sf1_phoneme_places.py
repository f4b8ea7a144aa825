"""
title: the positions of a text-to-speech batch are sent to the device as floats
expect: collision
thread: https://github.com/xcmyz/FastSpeech/issues/89
fix_at: 30, 58

Expectation, written first: the loader turns every array of the batch into float32, the phoneme places too; the
position table is an embedding, which takes integer indices only.
"""
import numpy as np
import torch
from torch import nn


def pad_1d(rows, value=0):
    longest = max(len(r) for r in rows)
    return np.stack([np.pad(r, (0, longest - len(r)), constant_values=value) for r in rows])


class Collate:
    def __init__(self, pitch_scale=100.0):
        self.pitch_scale = pitch_scale

    def __call__(self, items):
        text = pad_1d([i["text"] for i in items])
        places = pad_1d([np.arange(1, len(i["text"]) + 1) for i in items])
        pitch = pad_1d([i["pitch"] for i in items]) / self.pitch_scale
        return {
            "text": torch.from_numpy(text).long(),
            "src_pos": torch.from_numpy(places).float(),  # BORN
            "pitch": torch.from_numpy(pitch).float(),
        }


class FFTBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, padding):
        y, _ = self.attn(x, x, x, key_padding_mask=padding, need_weights=False)
        return self.norm(x + y)


class Encoder(nn.Module):
    def __init__(self, phonemes=30, width=16, longest=40):
        super().__init__()
        self.src_word_emb = nn.Embedding(phonemes, width, padding_idx=0)
        self.position_enc = nn.Embedding(longest + 1, width, padding_idx=0)
        self.pitch = nn.Linear(1, width)
        self.block = FFTBlock(width)
        self.duration = nn.Linear(width, 1)

    def forward(self, batch):
        padding = batch["text"] == 0
        x = self.src_word_emb(batch["text"])
        x = x + self.position_enc(batch["src_pos"])  # COLLIDES
        x = x + self.pitch(batch["pitch"][..., None])
        return self.duration(self.block(x, padding)).squeeze(-1).masked_fill(padding, 0.0)


def main():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    items = []
    for n in (7, 11, 5):
        items.append({"text": rng.integers(1, 30, n), "pitch": rng.uniform(90, 260, n)})
    durations = Encoder()(Collate()(items))
    print(tuple(durations.shape), round(durations.exp().sum().item(), 4))


main()
