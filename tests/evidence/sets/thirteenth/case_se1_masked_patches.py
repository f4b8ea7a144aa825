"""
title: a masked autoencoder puts its visible patches back among the mask tokens
expect: collision
thread: https://github.com/lightly-ai/lightly/issues/1077
fix_at: 30, 52, 59, 60, 61, 76, 92

Expectation, written first: with 16-bit precision switched on, the decoder's embedding layer returns bfloat16 while
the mask token is a float32 parameter; scatter of the one into the other is refused.
"""
import contextlib

import torch
import torch.nn.functional as F
from torch import nn


def repeat_token(token, size):
    return token.repeat(size[0], size[1], 1)


def expand_index_like(index, tokens):
    return index.unsqueeze(-1).expand(-1, -1, tokens.shape[-1])


def get_at_index(tokens, index):
    return torch.gather(tokens, 1, expand_index_like(index, tokens))


def set_at_index(tokens, index, value):
    return torch.scatter(tokens, 1, expand_index_like(index, tokens), value)  # COLLIDES


def random_token_mask(size, ratio, gen):
    order = torch.rand(size, generator=gen).argsort(1)
    keep = int(size[1] * (1 - ratio))
    return order[:, :keep], order[:, keep:]


class Block(nn.TransformerEncoderLayer):
    def __init__(self, dim):
        super().__init__(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)


class MAE(nn.Module):
    def __init__(self, patches=16, patch_dim=12, dim=32, decoder_dim=24):
        super().__init__()
        self.patches = patches
        self.patch_embed = nn.Linear(patch_dim, dim)
        self.pos, self.decoder_pos = (nn.Parameter(0.02 * torch.randn(1, patches, d)) for d in (dim, decoder_dim))
        self.encoder, self.decoder = Block(dim), Block(decoder_dim)
        self.decoder_embed = nn.Linear(dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_dim))
        self.predict = nn.Linear(decoder_dim, patch_dim)

    def forward_encoder(self, x, keep):
        return self.encoder(get_at_index(self.patch_embed(x) + self.pos, keep))

    def forward_decoder(self, encoded, keep, masked):
        x_decode = self.decoder_embed(encoded)  # BORN
        x = repeat_token(self.mask_token, (encoded.shape[0], self.patches))
        x = set_at_index(x, keep, x_decode)
        x = self.decoder(x + self.decoder_pos)
        return self.predict(get_at_index(x, masked))

    def training_step(self, x, gen):
        keep, masked = random_token_mask(x.shape[:2], 0.75, gen)
        predicted = self.forward_decoder(self.forward_encoder(x, keep), keep, masked)
        return F.mse_loss(predicted.float(), get_at_index(x, masked))


class Trainer:
    def __init__(self, precision):
        self.precision = precision

    def context(self):
        return torch.autocast("cpu", torch.bfloat16) if self.precision == 16 else contextlib.nullcontext()

    def fit(self, module, steps):
        gen = torch.Generator().manual_seed(3)
        opt = torch.optim.AdamW(module.parameters(), lr=1e-3)
        for _ in range(steps):
            x = torch.randn(8, 1, 12, generator=gen) + 0.1 * torch.randn(8, 16, 12, generator=gen)
            with self.context():
                loss = module.training_step(x, gen)
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()


torch.manual_seed(0)
print(f"loss {Trainer(precision=16).fit(MAE(), steps=5):.3f}")
