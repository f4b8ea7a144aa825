"""
title: sentence offsets of a multilingual corpus in int32, lengths in int16
expect: silent:overflow
thread: https://github.com/pytorch/translate/pull/411
measured: corpus of 3.8e9 tokens, sampled sentences that end in </s>: 281 of 500
widened: corpus of 3.8e9 tokens, sampled sentences that end in </s>: 500 of 500
fix_at: 36

Expectation, written first: the cumulated offsets pass 2^31 and become negative, so the
sampler reads from the other end of the corpus. Single lengths fit int16 easily; int64
lengths alone do not save the offsets.
"""
import numpy as np


class VirtualCorpus:
    """Token t of the concatenated corpus is computed, nothing is stored."""

    def __init__(self, lengths):
        self.starts = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
        self.total = int(self.starts[-1])

    def token(self, position):
        position = int(position) % self.total
        sentence = int(np.searchsorted(self.starts, position, side="right")) - 1
        last = position == self.starts[sentence + 1] - 1
        return "</s>" if last else sentence


class OffsetIndex:
    def __init__(self, offset_dtype, length_dtype):
        self.offset_dtype, self.length_dtype = offset_dtype, length_dtype

    def build(self, lengths):
        self.lengths = lengths.astype(self.length_dtype)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths, dtype=self.offset_dtype)])
        return self

    def sentence_end(self, i):
        return self.offsets[i] + np.int64(self.lengths[i]) - 1


def check(corpus, index, n_sentences, samples, rng):
    picks = rng.integers(0, n_sentences, samples)
    return sum(corpus.token(index.sentence_end(i)) == "</s>" for i in picks)


def main(n=200_000, samples=500):
    rng = np.random.default_rng(0)
    lengths = rng.integers(8000, 30000, n)
    corpus = VirtualCorpus(lengths)
    index = OffsetIndex(
        offset_dtype=np.int32,  # BORN
        length_dtype=np.int16,
    ).build(lengths)
    good = check(corpus, index, n, samples, rng)
    print(f"corpus of {corpus.total / 1e9:.1f}e9 tokens, sampled sentences that end in </s>: {good} of {samples}")


main()
