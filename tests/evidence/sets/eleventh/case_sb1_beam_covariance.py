"""
title: speech masks meet a complex observation in the covariance of a beamformer, with one channel only
expect: collision
thread: https://github.com/pytorch/pytorch/issues/116018
fix_at: 32

Expectation, written first: the masks are real and the spectra complex; with a single source the contraction goes
through a batched product at once, and that wants one dtype.
"""
import torch
from torch import nn


class MaskNet(nn.Module):
    def __init__(self, bins, sources):
        super().__init__()
        self.sources, self.bins = sources, bins
        self.net = nn.Sequential(nn.Linear(bins, 32), nn.ReLU(), nn.Linear(32, bins * sources))

    def forward(self, magnitude):
        mask = self.net(magnitude.transpose(-1, -2)).sigmoid()  # BORN
        t = mask.shape[0]
        return mask.view(t, self.sources, self.bins).permute(1, 0, 2)


def covariance(mask, spec):
    """mask (k, t, f), spec (d, t, f) -> (k, f, d, d)"""
    weighted = mask.sum(1).clamp(min=1e-6)
    outer = torch.einsum("dtf,etf->tfde", spec, spec.conj())
    t, f, d, _ = outer.shape
    flat = outer.permute(1, 0, 2, 3).reshape(f, t, d * d)
    phi = torch.einsum("kft,fto->kfo", mask.transpose(1, 2), flat)  # COLLIDES
    return phi.view(-1, f, d, d) / weighted[:, :, None, None]


class MVDR:
    def __init__(self, n_fft=64, channels=4):
        torch.manual_seed(1)
        self.n_fft, self.channels = n_fft, channels
        self.masks = MaskNet(n_fft // 2 + 1, 2)

    def stft(self, audio):
        window = torch.hann_window(self.n_fft)
        spec = torch.stft(audio, self.n_fft, self.n_fft // 2, window=window, return_complex=True)  # BORN
        return spec.transpose(1, 2)

    def weights(self, phi_s, phi_n):
        eye = torch.eye(self.channels, dtype=phi_n.dtype)
        ratio = torch.linalg.solve(phi_n + 1e-3 * eye, phi_s)
        trace = ratio.diagonal(dim1=-2, dim2=-1).sum(-1)
        return ratio[..., 0] / (trace[..., None] + 1e-8)

    @torch.no_grad()
    def enhance(self, audio):
        spec = self.stft(audio)
        mask = self.masks(spec[0].abs().t())
        phi_s, phi_n = covariance(mask, spec)
        w = self.weights(phi_s, phi_n)
        return torch.einsum("fd,dtf->tf", w.conj(), spec)


if __name__ == "__main__":
    gen = torch.Generator().manual_seed(0)
    audio = torch.randn(4, 1600, generator=gen)
    print(MVDR().enhance(audio).abs().mean().item())
