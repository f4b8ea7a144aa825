"""
title: attentive statistics pooling: a mask of lengths makes float32 statistics in a half-precision speaker model
expect: collision
thread: https://github.com/speechbrain/speechbrain/issues/2544
fix_at: 43, 44, 45, 46, 47

Expectation, written first: the mask is made without a dtype of its own (bool, then float()), so the weights mask/total
are float32, the mean and the deviation are float32 by promotion, and their concatenation with x goes to a bfloat16
convolution. The maintainers' reporter mends it with a cast to x.dtype.
"""
import torch
from torch import nn


def length_to_mask(lengths, max_len):
    return torch.arange(max_len)[None, :] < lengths[:, None]


class TDNN(nn.Module):
    def __init__(self, inputs, outputs, kernel=1):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x):
        return self.norm(torch.relu(self.conv(x)))  # COLLIDES


class AttentiveStatisticsPooling(nn.Module):
    def __init__(self, channels, attention=16):
        super().__init__()
        self.eps = 1e-4
        self.tdnn = TDNN(channels * 3, attention)
        self.conv = nn.Conv1d(attention, channels, 1)

    def statistics(self, x, m):
        mean = (m * x).sum(2)
        std = (m * (x - mean.unsqueeze(2)).pow(2)).sum(2).clamp(self.eps).sqrt()
        return mean, std

    def forward(self, x, lengths):
        L = x.shape[-1]
        mask = length_to_mask((lengths * L).round(), L).unsqueeze(1).float()  # BORN
        total = mask.sum(dim=2, keepdim=True)
        mean, std = self.statistics(x, mask / total)
        context = torch.cat([x, mean.unsqueeze(2).expand(-1, -1, L), std.unsqueeze(2).expand(-1, -1, L)], dim=1)
        attention = self.conv(torch.tanh(self.tdnn(context)))
        attention = attention.masked_fill(mask == 0, float("-inf")).softmax(dim=2)
        mean, std = self.statistics(x, attention)
        return torch.cat((mean, std), dim=1)


class SpeakerNet(nn.Module):
    def __init__(self, mels=20, channels=24, speakers=6):
        super().__init__()
        self.frame = TDNN(mels, channels, 5)
        self.pool = AttentiveStatisticsPooling(channels)
        self.out = nn.Linear(2 * channels, speakers)

    def forward(self, mels, lengths):
        return self.out(self.pool(self.frame(mels), lengths))


def main():
    torch.manual_seed(0)
    net = SpeakerNet().to(torch.bfloat16).eval()
    mels = torch.randn(3, 20, 40).to(torch.bfloat16)
    lengths = torch.tensor([1.0, 0.8, 0.5])
    with torch.no_grad():
        print(net(mels, lengths).float().softmax(-1).sum(-1).round().tolist())


main()
