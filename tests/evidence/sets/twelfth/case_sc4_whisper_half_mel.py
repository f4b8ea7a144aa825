"""
title: the log-mel front end runs in half, where the floor of 1e-10 is zero and the logarithm of silence minus infinity
expect: clean
thread: https://github.com/openai/whisper/pull/2390
measured: finite True, features differ by at most 0.001, encoder relative difference 0.0000

Expectation, written first: the next line lifts everything to eight decades below the loudest bin, which float16 reaches
well; the infinities are gone before anything reads them and the encoder's output is that of the float32 features.
"""
import torch
from transformers import WhisperConfig, WhisperModel

N_FFT, HOP, N_MELS = 128, 64, 16


def mel_filters():
    f = torch.linspace(0, 1, N_FFT // 2 + 1)
    edges = torch.linspace(0, 1, N_MELS + 2) ** 1.5
    up = (f[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - f[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(up, down).clamp(min=0).T


class FrontEnd:
    def __init__(self, dtype):
        self.dtype, self.filters = dtype, mel_filters()

    def __call__(self, audio):
        window = torch.hann_window(N_FFT)
        stft = torch.stft(audio, N_FFT, HOP, window=window, return_complex=True)
        magnitudes = (stft[..., :-1].abs() ** 2).to(self.dtype)
        mel_spec = self.filters.to(self.dtype) @ magnitudes
        log_spec = torch.clamp(mel_spec, min=1e-10).log10()
        log_spec = torch.maximum(log_spec, log_spec.amax((-2, -1), keepdim=True) - 8.0)
        return (log_spec + 4.0) / 4.0


class Recordings:
    """bursts of tone with digital silence between"""

    def __init__(self, n=4, length=64 * 64, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(length) / 4000
        tone = torch.sin(2 * torch.pi * torch.randint(200, 1500, (n, 1), generator=g) * t)
        tone = tone + 0.05 * torch.randn(n, length, generator=g)
        self.audio = tone * ((t * 8).long() % 3 != 0)


def main():
    torch.manual_seed(0)
    model = WhisperModel(WhisperConfig(
        vocab_size=64, num_mel_bins=N_MELS, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=32,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )).eval()
    audio = Recordings().audio
    half, full = FrontEnd(torch.float16)(audio).float(), FrontEnd(torch.float32)(audio)
    with torch.no_grad():
        a = model.encoder(half[..., :64]).last_hidden_state
        b = model.encoder(full[..., :64]).last_hidden_state
    print(f"finite {bool(half.isfinite().all())}, features differ by at most {(half - full).abs().max().item():.3f}, "
          f"encoder relative difference {((a - b).norm() / b.norm()).item():.4f}")


main()
