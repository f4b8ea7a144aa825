"""
title: a half-precision Whisper is fed with the float32 features of its extractor
expect: collision
thread: https://github.com/huggingface/transformers/pull/47816
fix_at: 56, 57, 66, 76

Expectation, written first: the feature extractor returns float32 log-mels whatever the checkpoint's dtype is, and the
first convolution of the half-precision encoder refuses them.
"""
from dataclasses import dataclass

import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration


@dataclass
class AsrConfig:
    rate: int = 16000
    torch_dtype: torch.dtype = torch.float16
    max_new_tokens: int = 5
    batch_size: int = 2


def build_model(cfg):
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=80, max_source_positions=50,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    ))
    return model.to(cfg.torch_dtype).eval()


class Recordings(torch.utils.data.Dataset):
    def __init__(self, cfg, n=4):
        self.rate, self.n = cfg.rate, n
        self.noise = np.random.default_rng(0)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        t = np.arange(int(self.rate * (0.6 + 0.1 * i))) / self.rate
        tone = np.sin(2 * np.pi * (180 + 60 * i) * t) + 0.05 * self.noise.standard_normal(len(t))
        return {"array": tone.astype(np.float32), "id": f"utt{i}"}


class SpeechCollator:
    def __init__(self, cfg):
        self.rate = cfg.rate
        self.extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=1, sampling_rate=cfg.rate)

    def __call__(self, samples):
        arrays = [s["array"] for s in samples]
        features = self.extractor(arrays, sampling_rate=self.rate, return_tensors="pt")
        return {"ids": [s["id"] for s in samples], "input_features": features.input_features}  # BORN


class Transcriber:
    def __init__(self, cfg, model):
        self.cfg, self.model = cfg, model

    @torch.no_grad()
    def decode(self, input_features):
        encoded = self.model.get_encoder()(input_features)  # COLLIDES
        tokens = torch.full((len(input_features), 1), self.model.config.decoder_start_token_id)
        for _ in range(self.cfg.max_new_tokens):
            logits = self.model(encoder_outputs=encoded, decoder_input_ids=tokens).logits[:, -1].float()
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        return tokens[:, 1:]

    def run(self, loader):
        out = {}
        for batch in loader:
            for name, row in zip(batch["ids"], self.decode(batch["input_features"])):
                out[name] = row.tolist()
        return out


def main():
    cfg = AsrConfig()
    loader = torch.utils.data.DataLoader(Recordings(cfg), cfg.batch_size, collate_fn=SpeechCollator(cfg))
    for name, tokens in Transcriber(cfg, build_model(cfg)).run(loader).items():
        print(name, tokens)


main()
