"""
title: a Whisper model in float16 is fed with the output of its own feature extractor
expect: collision
thread: https://github.com/huggingface/transformers/issues/47805
fix_at: 33, 41, 44, 45, 49, 50, 55

Expectation, written first: the feature extractor computes in numpy and hands out float32 log-mel features; the first
convolution of the float16 encoder refuses them.
"""
import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperModel

RATE = 16000


def utterance(seconds, pitch, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    voice = sum(np.sin(2 * np.pi * pitch * k * t) / k for k in range(1, 6))
    envelope = 0.5 * (1 + np.sin(2 * np.pi * 3 * t))
    return (0.2 * voice * envelope + 0.01 * rng.standard_normal(len(t))).astype(np.float32)


def tiny_whisper(dtype):
    torch.manual_seed(12)
    config = WhisperConfig(
        vocab_size=80, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_source_positions=50, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )
    return WhisperModel(config).eval().to(dtype)  # BORN


class SpeechEmbedder:
    """utterances to one vector each"""

    def __init__(self, dtype=torch.float32):
        self.extract = WhisperFeatureExtractor(feature_size=16, sampling_rate=RATE, chunk_length=1)
        self.model = tiny_whisper(dtype)

    def features(self, waves):
        out = self.extract(waves, sampling_rate=RATE, return_tensors="pt")  # BORN
        return out.input_features

    @torch.no_grad()
    def __call__(self, waves):
        feats = self.features(waves)
        hidden = self.model.encoder(feats).last_hidden_state  # COLLIDES
        return torch.nn.functional.normalize(hidden.float().mean(1), dim=-1)


def main():
    embed = SpeechEmbedder(dtype=torch.float16)  # BORN
    waves = [utterance(0.8, 120, 1), utterance(0.8, 121, 2), utterance(0.8, 230, 3)]
    e = embed(waves)
    print(tuple(e.shape), [round(v, 4) for v in (e @ e.T)[0].tolist()])


main()
