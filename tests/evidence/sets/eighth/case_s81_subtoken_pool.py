"""
title: averaging the vectors of word pieces into word vectors in a bf16 tagger
expect: collision
thread: https://github.com/flairNLP/flair/pull/3651

Expectation, written first: the encoder runs in bf16, the word sums are allocated
in bf16, but the piece counts are added from mask.float(), which is float32 whatever the
model is: scatter_add_ refuses (self.dtype and src.dtype differ).
BORN is mask.float(); mask.to(hidden.dtype) mends it, as the project did.
"""
import torch
from torch import nn


class PieceEncoder(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.mixer = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, ids):
        h = self.table(ids)
        return h + self.mixer(h)


class WordPooler(nn.Module):
    """Mean of the pieces that belong to each word."""

    def forward(self, hidden, word_ids, mask, num_words):
        batch, _, width = hidden.shape
        kept = hidden * mask.unsqueeze(-1)
        sums = torch.zeros(batch, num_words, width, dtype=hidden.dtype)
        sums.scatter_add_(1, word_ids.unsqueeze(-1).expand(-1, -1, width), kept)
        counts = torch.zeros(batch, num_words, dtype=hidden.dtype)
        weights = mask.float()  # BORN
        counts.scatter_add_(1, word_ids, weights)  # COLLIDES
        return sums / counts.clamp(min=1).unsqueeze(-1)


class Tagger(nn.Module):
    def __init__(self, vocab=200, width=32, tags=5):
        super().__init__()
        self.encoder = PieceEncoder(vocab, width)
        self.pooler = WordPooler()
        self.head = nn.Linear(width, tags)

    def forward(self, ids, word_ids, mask, num_words):
        words = self.pooler(self.encoder(ids), word_ids, mask, num_words)
        return self.head(words)


def toy_batch(gen):
    ids = torch.randint(0, 200, (2, 9), generator=gen)
    word_ids = torch.tensor([[0, 0, 1, 2, 2, 2, 3, 4, 4], [0, 1, 1, 2, 3, 3, 4, 4, 4]])
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 7:] = False
    return ids, word_ids, mask


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = Tagger().to(torch.bfloat16).eval()
    ids, word_ids, mask = toy_batch(gen)
    with torch.no_grad():
        scores = model(ids, word_ids, mask, num_words=5)
    print("tags", scores.argmax(-1).tolist())


if __name__ == "__main__":
    main()
