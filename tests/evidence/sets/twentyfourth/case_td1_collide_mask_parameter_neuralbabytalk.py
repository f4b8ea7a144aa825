"""
title: An integer class mask is registered as a trainable parameter
expect: collision
thread: https://github.com/jiasenlu/NeuralBabyTalk/issues/26
fix_at: the .byte() of the mask in the data loader

Expectation, written first: The data loader makes the foreground mask as uint8. The caption model wraps it
in nn.Parameter, which asks for gradients by default; torch allows that for floating point only and
raises while the model is built.
"""
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter


class DataLoaderFlickr:
    def __init__(self, num_classes, num_fine, seed=0):
        rng = np.random.default_rng(seed)
        self.det_to_fine = rng.integers(0, num_classes, size=num_fine)
        self.glove_fg = torch.from_numpy(rng.normal(size=(num_fine + 1, 8))).float()
        fg_mask = np.ones((num_classes + 1, num_fine + 1))
        for fine, coarse in enumerate(self.det_to_fine):
            fg_mask[coarse + 1, fine + 1] = 0
        fg_mask[0, 0] = 0
        self.fg_mask = torch.from_numpy(fg_mask).byte()


class CascadeCore(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.fc_att = nn.Linear(opt.rnn_size, opt.fg_emb)
        self.bn_fc = nn.Linear(opt.rnn_size, 2)
        self.fg_emb = Parameter(opt.glove_fg)
        self.fg_mask = Parameter(opt.fg_mask)  # BORN COLLIDES

    def forward(self, h, pooled_class):
        bn_logprob = F.log_softmax(self.bn_fc(h), dim=1)
        fg_score = self.fc_att(h) @ self.fg_emb.t()
        mask = self.fg_mask[pooled_class].bool()
        fg_logprob = F.log_softmax(fg_score.masked_fill(mask, -1e8), dim=1)
        return bn_logprob, fg_logprob


class TopDownModel(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.embed = nn.Embedding(opt.vocab_size, opt.rnn_size)
        self.lstm = nn.LSTMCell(opt.rnn_size * 2, opt.rnn_size)
        self.ccr_core = CascadeCore(opt)
        self.rnn_size = opt.rnn_size

    def forward(self, words, regions, region_class):
        h = c = regions.new_zeros(len(words), self.rnn_size)
        losses = []
        for t in range(words.shape[1]):
            h, c = self.lstm(torch.cat([self.embed(words[:, t]), regions], dim=1), (h, c))
            bn, fg = self.ccr_core(h, region_class)
            losses.append(-(bn.max(dim=1)[0] + fg.max(dim=1)[0]).mean())
        return torch.stack(losses).mean()


def main():
    torch.manual_seed(16)
    loader = DataLoaderFlickr(num_classes=5, num_fine=20)
    opt = SimpleNamespace(vocab_size=30, rnn_size=16, fg_emb=8,
                          glove_fg=loader.glove_fg, fg_mask=loader.fg_mask)
    model = TopDownModel(opt)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for it in range(2):
        loss = model(torch.randint(0, 30, (4, 6)), torch.randn(4, 16), torch.randint(1, 6, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(it, round(loss.item(), 4))


if __name__ == "__main__":
    main()
