"""
title: attentive statistics pooling of a half-precision ECAPA model: the length mask is fp32 and lifts the statistics
expect: collision
thread: https://github.com/speechbrain/speechbrain/issues/2544
fix_at: 50, 51, 52, 53, 54, 55, 81

Expectation, written first: the speaker encoder runs in bfloat16, but length_to_mask builds the mask in the dtype of the relative
lengths, float32. The masked mean and deviation are promoted to float32, the concatenation with the features too, and the pooling's own
bfloat16 TDNN convolution refuses its input.
"""
import torch
import torch.nn.functional as F
from torch import nn

def length_to_mask(length, max_len=None, dtype=None):
    if max_len is None:
        max_len = length.max().long().item()
    mask = torch.arange(max_len, dtype=length.dtype).expand(len(length), max_len) < length.unsqueeze(1)
    if dtype is None:
        dtype = length.dtype  # BORN
    return torch.as_tensor(mask, dtype=dtype)  # BORN

class TDNNBlock(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation,
                              padding=dilation * (kernel_size - 1) // 2)
        self.norm = nn.BatchNorm1d(out_channels)

    def forward(self, x):
        return self.norm(F.relu(self.conv(x)))  # COLLIDES

class AttentiveStatisticsPooling(nn.Module):
    def __init__(self, channels, attention_channels=8):
        super().__init__()
        self.eps = 1e-12
        self.tdnn = TDNNBlock(channels * 3, attention_channels, 1)
        self.conv = nn.Conv1d(attention_channels, channels, 1)

    def _compute_statistics(self, x, m, dim=2):
        mean = (m * x).sum(dim)
        std = torch.sqrt((m * (x - mean.unsqueeze(dim)).pow(2)).sum(dim).clamp(self.eps))
        return mean, std

    def forward(self, x, lengths=None):
        L = x.shape[-1]
        if lengths is None:
            lengths = torch.ones(x.shape[0])
        mask = length_to_mask(lengths * L, max_len=L).unsqueeze(1)  # BORN
        total = mask.sum(dim=2, keepdim=True)
        mean, std = self._compute_statistics(x, mask / total)
        mean = mean.unsqueeze(2).repeat(1, 1, L)
        std = std.unsqueeze(2).repeat(1, 1, L)
        attn = torch.cat([x, mean, std], dim=1)
        attn = self.conv(torch.tanh(self.tdnn(attn)))
        attn = attn.masked_fill(mask == 0, float("-inf"))
        attn = F.softmax(attn, dim=2)
        mean, std = self._compute_statistics(x, attn)
        return torch.cat((mean, std), dim=1).unsqueeze(2)

class ECAPA(nn.Module):
    def __init__(self, n_mels=20, channels=16, emb_dim=12):
        super().__init__()
        self.blocks = nn.ModuleList([TDNNBlock(n_mels, channels, 5), TDNNBlock(channels, channels, 3, dilation=2)])
        self.asp = AttentiveStatisticsPooling(channels)
        self.fc = nn.Conv1d(channels * 2, emb_dim, 1)

    def forward(self, feats, lengths=None):
        x = feats.transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.fc(self.asp(x, lengths=lengths)).squeeze(2)

class SpeakerVerification:
    def __init__(self, dtype):
        self.dtype = dtype
        self.embedding_model = ECAPA().to(dtype).eval()

    @torch.no_grad()
    def encode_batch(self, feats, wav_lens):
        return self.embedding_model(feats.to(self.dtype), wav_lens).float()

    def verify(self, feats, wav_lens):
        emb = self.encode_batch(feats, wav_lens)
        return F.cosine_similarity(emb[0], emb[1], dim=0).item()

if __name__ == "__main__":
    torch.manual_seed(0)
    score = SpeakerVerification(torch.bfloat16).verify(torch.randn(2, 40, 20), torch.tensor([1.0, 0.75]))
    print(f"score {score:.4f}")
