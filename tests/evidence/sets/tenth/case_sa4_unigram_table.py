"""
title: word counts of a corpus are int16; the vectors of the words are half
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/tensorflow/tensorflow/issues/2209
measured: share of the three most frequent words in the noise 6.4% (meant 14.1%), mean coordinate 0.73
widened: share of the three most frequent words in the noise 14.3% (meant 14.1%), mean coordinate 0.75

Expectation, written first: counts of the most frequent words pass 32767 and wrap, negative
ones are taken as zero: such words are never drawn as noise. The vectors in half are a
rounding; widening them leaves the noise as it was.
"""
import torch


class Corpus:
    def __init__(self, vocab=400, tokens=600_000, seed=0):
        gen = torch.Generator().manual_seed(seed)
        share = 1.0 / torch.arange(1, vocab + 1)
        self.tokens = torch.multinomial(share, tokens, replacement=True, generator=gen)
        self.vocab = vocab

    def shards(self, size=20_000):
        return self.tokens.split(size)


class Vocabulary:
    def __init__(self, corpus):
        self.counts = torch.zeros(corpus.vocab, dtype=torch.int16)  # BORN
        for shard in corpus.shards():
            self.counts += torch.bincount(shard, minlength=corpus.vocab)

    def noise(self):
        p = self.counts.clamp(min=0).double() ** 0.75
        return p / p.sum()


def mean_noise_score(vectors, noise, gen):
    drawn = torch.multinomial(noise, 20_000, replacement=True, generator=gen)
    return torch.bincount(drawn, minlength=len(vectors)), vectors[drawn].float().mean().item()


def main():
    corpus = Corpus()
    gen = torch.Generator().manual_seed(1)
    rank = torch.linspace(1, 0, corpus.vocab)[:, None] + 0.1 * torch.randn(corpus.vocab, 16, generator=gen)
    vectors = rank.to(torch.float16)
    drawn, score = mean_noise_score(vectors, Vocabulary(corpus).noise(), gen)
    exact = torch.bincount(corpus.tokens, minlength=corpus.vocab).double() ** 0.75
    share = 100 * (exact / exact.sum())[:3].sum().item()
    print(f"share of the three most frequent words in the noise {100 * drawn[:3].sum() / drawn.sum():.1f}% (meant {share:.1f}%), mean coordinate {score:.2f}")


main()
