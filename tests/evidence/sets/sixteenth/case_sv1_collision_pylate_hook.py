"""
title: a gradient cache embeds again in a backward hook, after the autocast region has gone
expect: collision
thread: https://github.com/lightonai/pylate/pull/242
fix_at: 36, 40, 43, 52, 55, 57, 72

Expectation, written first: the first pass embeds under autocast and the gradients of the embeddings are cached in
bfloat16; the hook runs in backward(), where the region is over, so the second pass gives float32 embeddings and their
dot product with the cached bfloat16 gradients is refused. Mend: keep the region for the hook (the pull request), at
the second embedding or the cache.
"""
from functools import partial

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=60, width=16):
        super().__init__()
        self.words = nn.EmbeddingBag(vocab, width)
        self.dense = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, ids):
        return self.dense(self.words(ids))


class CachedContrastive(nn.Module):
    def __init__(self, encoder, mini=8, scale=2.0):
        super().__init__()
        self.encoder, self.mini, self.scale = encoder, mini, scale
        self.cache = None

    def embed(self, ids, grad):
        with torch.set_grad_enabled(grad):
            return [self.encoder(part) for part in ids.split(self.mini)]

    def embed_again(self, grad_output, columns):
        for ids, cached in zip(columns, self.cache):
            again = self.embed(ids, grad=True)  # BORN
            with torch.enable_grad():
                for emb, g in zip(again, cached):
                    surrogate = torch.dot(emb.flatten(), g.flatten()) * grad_output  # COLLIDES
                    surrogate.backward()

    def loss(self, reps):
        a, b = (torch.cat(r) for r in reps)
        scores = (a @ b.t()).float() * self.scale
        return nn.functional.cross_entropy(scores, torch.arange(len(a)))

    def forward(self, columns):
        reps = [[e.detach().requires_grad_() for e in self.embed(ids, grad=False)] for ids in columns]
        loss = self.loss(reps)
        loss.backward()
        self.cache = [[e.grad for e in r] for r in reps]  # BORN
        loss = loss.detach().requires_grad_()
        loss.register_hook(partial(self.embed_again, columns=columns))  # BORN
        return loss


def main():
    torch.manual_seed(0)
    encoder = Encoder()
    criterion = CachedContrastive(encoder)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    queries = torch.randint(0, 60, (24, 6))
    documents = torch.cat([queries[:, :4], torch.randint(0, 60, (24, 3))], dim=1)
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion([queries, documents])
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.2f}")


main()
