"""
title: half-precision mel from the flow-matching sampler meets the fp32 Vocos vocoder
expect: collision
thread: https://github.com/SWivid/F5-TTS/issues/192
fix_at: 45, 66, 81

Expectation, written first: the CFM transformer is loaded in half precision on purpose and its sampler returns the mel in that dtype;
the vocoder stays in float32. infer_batch hands the mel over without a cast and the vocoder's embedding convolution raises.
"""
import numpy as np
import torch
from torch import nn

class DiT(nn.Module):
    def __init__(self, mel_dim=20, dim=32):
        super().__init__()
        self.input_embed = nn.Linear(mel_dim * 2, dim)
        self.time_mlp = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.text_embed = nn.Embedding(64, dim)
        self.proj_out = nn.Linear(dim, mel_dim)

    def forward(self, x, cond, text, time):
        h = self.input_embed(torch.cat((x, cond), dim=-1)) + self.time_mlp(time.view(1, 1, 1).to(x.dtype))
        h = h + self.text_embed(text).mean(dim=1, keepdim=True)
        return self.proj_out(torch.nn.functional.silu(h))

class CFM(nn.Module):
    def __init__(self, transformer):
        super().__init__()
        self.transformer = transformer

    @property
    def dtype(self):
        return next(self.parameters()).dtype

    @torch.no_grad()
    def sample(self, cond, text, duration, steps=8, seed=0):
        cond = cond.to(self.dtype)
        cond = torch.nn.functional.pad(cond, (0, 0, 0, duration - cond.shape[1]))
        generator = torch.Generator().manual_seed(seed)
        y = torch.randn(cond.shape, generator=generator).to(self.dtype)
        ts = torch.linspace(0, 1, steps + 1)
        for t0, t1 in zip(ts[:-1], ts[1:]):
            y = y + (t1 - t0) * self.transformer(y, cond, text, t0)
        return y

class VocosBackbone(nn.Module):
    def __init__(self, input_channels, dim):
        super().__init__()
        self.embed = nn.Conv1d(input_channels, dim, kernel_size=7, padding=3)
        self.norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        x = self.embed(x).transpose(1, 2)  # COLLIDES
        return x + self.ffn(self.norm(x))

class Vocos(nn.Module):
    def __init__(self, mel_dim=20, dim=32, n_fft=64, hop_length=16):
        super().__init__()
        self.n_fft, self.hop_length = n_fft, hop_length
        self.backbone = VocosBackbone(mel_dim, dim)
        self.head = nn.Linear(dim, n_fft + 2)

    def decode(self, features_input):
        mag, phase = self.head(self.backbone(features_input)).transpose(1, 2).chunk(2, dim=1)
        spec = torch.polar(torch.exp(mag).clip(max=1e2), phase)
        return torch.istft(spec, self.n_fft, self.hop_length, window=torch.hann_window(self.n_fft))

def load_model(dtype=torch.float16):  # BORN
    torch.manual_seed(0)
    return CFM(DiT()).to(dtype).eval()  # BORN

def infer_batch(model, vocoder, ref_mel, gen_texts, speed=1.0):
    waves = []
    for gen_text in gen_texts:
        tokens = torch.tensor([[ord(c) % 64 for c in gen_text]])
        duration = ref_mel.shape[1] + int(len(gen_text) * 2 / speed)
        generated = model.sample(ref_mel, tokens, duration)
        generated_mel_spec = generated[:, ref_mel.shape[1]:, :].permute(0, 2, 1)  # BORN
        generated_wave = vocoder.decode(generated_mel_spec)
        waves.append(generated_wave.squeeze().detach().cpu().numpy())
    return np.concatenate(waves)

if __name__ == "__main__":
    tts = load_model()  # BORN
    vocos = Vocos().eval()
    wave = infer_batch(tts, vocos, torch.randn(1, 12, 20), ["hello there general", "this is a second line"])
    print(wave.dtype, wave.shape, bool(np.isfinite(wave).all()))
