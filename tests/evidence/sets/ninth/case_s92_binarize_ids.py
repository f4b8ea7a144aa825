"""
title: distillation corpus binarised with 16-bit token ids for a 119547 word vocabulary
expect: silent:overflow|downcast
thread: https://github.com/huggingface/transformers/issues/2825
measured: stored 200 lines, words read back correctly: 73.9 %
widened: stored 200 lines, words read back correctly: 100.0 %

Expectation, written first: ids above 65535 wrap, so the share of the vocabulary beyond
that comes back as other words; the student learns from a wrong corpus.
"""
import io
import pickle

import numpy as np


class ToyTokenizer:
    vocab_size = 119547

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def encode(self, n_words):
        u = self.rng.random(n_words)
        return (self.vocab_size * u ** 2).astype(np.int64).tolist()

    def decode(self, ids):
        return [f"w{int(i)}" for i in ids]


def read_corpus(tokenizer, lines=200):
    lengths = np.random.default_rng(1).integers(5, 40, lines)
    return [tokenizer.encode(int(n)) for n in lengths]


def binarize(corpus, handle):
    arrays = [np.array(ids, dtype=np.int64).astype(np.uint16) for ids in corpus]  # BORN
    np.random.default_rng(2).shuffle(np.arange(len(arrays)))
    pickle.dump(arrays, handle)
    return sum(a.nbytes for a in arrays)


def load(handle):
    handle.seek(0)
    return pickle.load(handle)


def compare(tokenizer, corpus, stored):
    same = total = 0
    for ids, arr in zip(corpus, stored):
        a, b = tokenizer.decode(ids), tokenizer.decode(arr)
        same += sum(x == y for x, y in zip(a, b))
        total += len(ids)
    return same / total


if __name__ == "__main__":
    tok = ToyTokenizer()
    corpus = read_corpus(tok)
    buf = io.BytesIO()
    size = binarize(corpus, buf)
    share = compare(tok, corpus, load(buf))
    print(f"stored {len(corpus)} lines, words read back correctly: {100 * share:.1f} %")
