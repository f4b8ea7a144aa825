"""
title: a float16 speech checkpoint is fed with the float32 features of its own extractor
expect: collision
thread: https://github.com/huggingface/transformers/issues/47805
fix_at: 18, 28, 48, 56, 60, 61

Expectation, written first: the checkpoint's config declares float16 and the model follows it; the extractor always
emits float32 log-mels and the first convolution refuses an input that is not of its bias's type.
"""
import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

CHECKPOINT = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 80,
    "max_source_positions": 50, "max_target_positions": 32, "vocab_size": 200,
    "dtype": "float16",  # BORN
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1,
    "suppress_tokens": None, "begin_suppress_tokens": None,
}


def load_model(checkpoint):
    torch.manual_seed(3)
    spec = dict(checkpoint)
    dtype = getattr(torch, spec.pop("dtype"))
    return WhisperForConditionalGeneration(WhisperConfig(**spec)).eval().to(dtype)  # BORN


class Clips:
    def __init__(self, rate=16000, seconds=0.6):
        self.rate, self.seconds = rate, seconds

    def __iter__(self):
        t = np.arange(int(self.rate * self.seconds), dtype=np.float32) / self.rate
        for hz in (220, 440):
            yield np.sin(2 * np.pi * hz * t) * np.exp(-3 * t)


class Frontend:
    def __init__(self, rate):
        self.extractor = WhisperFeatureExtractor(feature_size=80, sampling_rate=rate, chunk_length=1)
        self.rate = rate

    def __call__(self, waves):
        batch = self.extractor([w for w in waves], sampling_rate=self.rate, return_tensors="pt")
        return batch.input_features  # BORN


class Transcriber:
    def __init__(self, model, frontend):
        self.model, self.frontend = model, frontend

    def embed(self, features):
        return self.model.get_encoder()(features).last_hidden_state  # COLLIDES

    @torch.no_grad()
    def __call__(self, clips):
        features = self.frontend(clips)
        memory = self.embed(features)
        start = torch.full((len(memory), 1), self.model.config.decoder_start_token_id)
        hidden = self.model.model.decoder(input_ids=start, encoder_hidden_states=memory).last_hidden_state
        return self.model.proj_out(hidden)[:, -1].argmax(-1)


def main():
    clips = Clips()
    transcriber = Transcriber(load_model(CHECKPOINT), Frontend(clips.rate))
    print("first tokens", transcriber(clips).tolist())


main()
