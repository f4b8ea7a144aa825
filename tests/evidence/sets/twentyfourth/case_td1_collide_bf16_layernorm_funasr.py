"""
title: bf16: true casts the encoder but the fbank features stay float
expect: collision
thread: https://github.com/modelscope/FunASR/issues/2092
fix_at: the model.to(torch.bfloat16) of build_model (leave it away, or cast the inputs there)

Expectation, written first: With bf16 set the builder casts all weights to bfloat16. The frontend's
features are float32 and reach the encoder uncast; the first operation with parameters is a layer norm,
which on the CPU wants Float parameters for a Float input and raises.
"""
import math

import torch
import torch.nn as nn


class WavFrontend:
    def __init__(self, n_mels=20, frame=160, lfr_m=3):
        self.n_mels, self.frame, self.lfr_m = n_mels, frame, lfr_m

    def __call__(self, wav):
        frames = wav[: len(wav) // self.frame * self.frame].view(-1, self.frame)
        spec = torch.fft.rfft(frames * torch.hamming_window(self.frame)).abs().pow(2)
        mel = nn.functional.adaptive_avg_pool1d(spec[:, None], self.n_mels)[:, 0]
        feats = torch.log(mel + 1e-6)
        feats = feats[: len(feats) // self.lfr_m * self.lfr_m].reshape(-1, self.n_mels * self.lfr_m)
        return feats[None], torch.tensor([len(feats)])


class EncoderLayerSANM(nn.Module):
    def __init__(self, in_size, size, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(in_size)
        self.qkv = nn.Linear(in_size, size * 3)
        self.out = nn.Linear(size, size)
        self.heads = heads

    def forward(self, x):
        x = self.norm1(x)  # COLLIDES
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        att = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out((att @ v).transpose(1, 2).reshape(b, t, -1))


class SenseVoiceSmall(nn.Module):
    def __init__(self, input_size, size, vocab):
        super().__init__()
        self.encoder = EncoderLayerSANM(input_size, size)
        self.ctc = nn.Linear(size, vocab)

    @torch.no_grad()
    def inference(self, wav, frontend):
        speech, speech_lengths = frontend(wav)  # BORN
        encoder_out = self.encoder(speech)  # BORN
        logits = self.ctc(encoder_out).float().log_softmax(-1)
        ids = logits[0, : speech_lengths[0]].argmax(-1)
        return [int(i) for i in torch.unique_consecutive(ids) if i != 0]


class AutoModel:
    def __init__(self, **kwargs):
        self.frontend = WavFrontend()
        self.model = self.build_model(**kwargs)

    def build_model(self, bf16=False, fp16=False, **kwargs):
        model = SenseVoiceSmall(60, 32, 40).eval()
        if fp16:
            model.to(torch.float16)
        elif bf16:
            model.to(torch.bfloat16)
        return model

    def generate(self, wav):
        return self.model.inference(wav, self.frontend)


def main():
    torch.manual_seed(1)
    wav = torch.randn(16000)
    print("fp32", AutoModel().generate(wav)[:8])
    torch.manual_seed(1)
    print("bf16", AutoModel(bf16=True).generate(wav)[:8])


if __name__ == "__main__":
    main()
