"""
title: one mel bin at the log floor explodes after per-feature normalisation: variance as E[x^2] - E[x]^2 in float32
expect: silent:cancellation|precision-loss
thread: https://github.com/k2-fsa/sherpa-onnx/pull/3857
measured: rms of the features 63.475, peak 1856.33; entropy of the CTC posteriors 2.414
widened: rms of the features 1.000, peak 4.27; entropy of the CTC posteriors 2.446
innocent: rms of the features 63.475, peak 1856.33; entropy of the CTC posteriors 2.414
suspect: 46 bf16 projection: small (0.4% on a pre-activation)

Expectation, written first: A bin near -15.94 with a spread of 0.005 has both terms near 254, and float32 cannot hold their difference of
    2.5e-5: the std becomes zero and the bin is divided by the epsilon. The bfloat16 projection looks worse, but it only rounds by 0.4%.
"""
import torch
from torch import nn


class LogMelFrontend:
    def __init__(self, n_mels=16, floor=-15.94):
        self.n_mels, self.floor = n_mels, floor

    def __call__(self, frames, seed):
        g = torch.Generator().manual_seed(seed)
        mel = -6 + 2.5 * torch.randn(frames, self.n_mels, generator=g)
        mel[:, 3] = self.floor + 0.005 * torch.randn(frames, generator=g)
        return mel


class NemoNormalizePerFeature:
    def __init__(self, eps=1e-5):
        self.eps = eps

    def __call__(self, features):
        n = features.shape[0]
        mean = features.sum(0) / n
        var = features.pow(2).sum(0) / n - mean**2  # BORN
        std = var.clamp(min=0).sqrt()
        return (features - mean) / (std + self.eps)


class EncoderStub(nn.Module):
    def __init__(self, n_mels, dim, vocab):
        super().__init__()
        self.proj, self.ctc = nn.Linear(n_mels, dim), nn.Linear(dim, vocab)

    def forward(self, feats):
        h = nn.functional.linear(feats.to(torch.bfloat16), self.proj.weight.to(torch.bfloat16)).float()
        return self.ctc(torch.tanh(h + self.proj.bias)).log_softmax(-1)


torch.manual_seed(0)
frontend, normalize, encoder = LogMelFrontend(), NemoNormalizePerFeature(), EncoderStub(16, 24, 12)
rms, peak, entropy = [], [], []
with torch.no_grad():
    for utt in range(6):
        feats = normalize(frontend(300 + 20 * utt, seed=utt))
        logp = encoder(feats)
        rms.append(feats.pow(2).mean().sqrt())
        peak.append(feats.abs().max())
        entropy.append(-(logp.exp() * logp).sum(-1).mean())
print(f"rms of the features {torch.stack(rms).mean():.3f}, peak {torch.stack(peak).max():.2f}")
print(f"entropy of the CTC posteriors {torch.stack(entropy).mean():.3f}")
