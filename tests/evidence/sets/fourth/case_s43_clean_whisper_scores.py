"""
title: Whisper in bfloat16 for inference, float32 features cast once, token scores summed in float32
expect: clean
needs: transformers

The right way round of https://github.com/kadirnar/whisper-plus/issues/58 and https://github.com/vllm-project/vllm/pull/19.
"""
import math

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(48)


class FrontEnd:
    def __init__(self, n_fft=64, hop=32, mels=8):
        self.n_fft, self.hop = n_fft, hop
        centres = torch.linspace(0, n_fft // 2, mels + 2)
        bins = torch.arange(n_fft // 2 + 1)
        rise = (bins - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
        fall = (centres[2:, None] - bins) / (centres[2:] - centres[1:-1])[:, None]
        self.filters = torch.minimum(rise, fall).clamp(min=0)

    def __call__(self, pcm, length=64):
        wave = pcm.float() / 32768
        spec = torch.stft(wave, self.n_fft, self.hop, window=torch.hann_window(self.n_fft), return_complex=True)
        log = (self.filters @ spec.abs().square()).clamp(min=1e-10).log10()
        log = torch.maximum(log, log.amax((1, 2), keepdim=True) - 8.0)
        return ((log + 4.0) / 4.0)[..., :length]


class Transcriber:
    def __init__(self, dtype=torch.bfloat16):
        config = WhisperConfig(vocab_size=60, num_mel_bins=8, d_model=32, encoder_layers=1, decoder_layers=1,
                               encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                               max_source_positions=32, max_target_positions=24, pad_token_id=0, bos_token_id=1,
                               eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)
        self.model = WhisperForConditionalGeneration(config).to(dtype).eval()
        self.front, self.dtype = FrontEnd(), dtype

    @torch.inference_mode()
    def __call__(self, pcm, new=12):
        features = self.front(pcm).to(self.dtype)
        encoded = self.model.model.encoder(features)
        ids = torch.full((pcm.shape[0], 1), 1)
        score = torch.zeros(pcm.shape[0])
        for _ in range(new):
            logits = self.model(encoder_outputs=encoded, decoder_input_ids=ids).logits[:, -1]
            logp = logits.float().log_softmax(-1)
            best = logp.max(-1)
            score += best.values
            ids = torch.cat([ids, best.indices[:, None]], dim=1)
        return ids, score / new


t = torch.arange(2048) / 16000
pcm = torch.stack([8000 * torch.sin(2 * math.pi * f * t) for f in (440.0, 880.0)]).to(torch.int16)
ids, score = Transcriber()(pcm)
print("tokens", tuple(ids.shape), "mean score", [round(s, 3) for s in score.tolist()])
