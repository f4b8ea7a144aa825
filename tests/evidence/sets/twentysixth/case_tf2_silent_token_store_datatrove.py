"""
title: substring deduplication of a tokenizer with more than 100k entries finds duplicates that are none
expect: silent:overflow|downcast
thread: https://github.com/huggingface/datatrove/issues/118
measured: documents 200 distinct ids 3583 largest id 29998 / documents with duplicated spans 100
widened: documents 200 distinct ids 6996 largest id 95534 / documents with duplicated spans 0; innocent: documents 200 distinct ids 3583 largest id 29998 / documents with duplicated spans 100
suspect: 41 exact (no document is longer than a few hundred tokens)

Expectation, written first: the token ids go to a uint16 buffer; an id of 65536 and more wraps around and so becomes the
id of another token, so that windows of different documents agree. Remedy: uint32 for the token stream. The document
lengths in int16 are far below 32767.
"""
import io

import numpy as np
import torch

TOKEN_DTYPE = np.uint16  # BORN


class Tokenizer:
    vocab_size = 120_000

    def encode(self, words):
        return [(w * 7919) % self.vocab_size for w in words]


class DocumentTokenStore:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.stream = io.BytesIO()
        self.sizes = []

    def save_document(self, words):
        doc_ids = np.array(self.tokenizer.encode(words))
        self.stream.write(doc_ids.astype(TOKEN_DTYPE).tobytes())  # BORN
        self.sizes.append(len(doc_ids))

    def close(self):
        tokens = np.frombuffer(self.stream.getvalue(), dtype=TOKEN_DTYPE)
        sizes = np.array(self.sizes, dtype=np.int16)
        bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
        return torch.from_numpy(tokens.astype(np.int64)), bounds


class SubstringDedup:
    def __init__(self, min_len):
        self.min_len = min_len

    def find(self, tokens, bounds):
        seen, duplicated = {}, 0
        for doc in range(len(bounds) - 1):
            row = tokens[bounds[doc]:bounds[doc + 1]]
            hit = False
            for window in row.unfold(0, self.min_len, 1).tolist():
                owner = seen.setdefault(tuple(window), doc)
                hit = hit or owner != doc
            duplicated += hit
        return duplicated


def read_corpus(generator, n_docs=200, length=40):
    low = torch.randint(0, 30_000, (n_docs, length), generator=generator)
    corpus = []
    for i in range(n_docs):
        words = low[i].tolist()
        corpus.append(words)
    return corpus


class PairedCorpus(Tokenizer):
    """Half of the documents use the upper part of the vocabulary (other scripts)."""

    def encode(self, words):
        shift = 65_536 if words[0] % 2 else 0
        return [w % 30_000 + shift for w in words]


def main():
    generator = torch.Generator().manual_seed(118)
    base = read_corpus(generator)
    corpus = []
    for words in base[:100]:
        latin = [w // 2 * 2 for w in words]
        corpus.append(latin)
        corpus.append([latin[0] + 1] + latin[1:])
    store = DocumentTokenStore(PairedCorpus())
    for words in corpus:
        store.save_document(words)
    tokens, bounds = store.close()
    duplicated = SubstringDedup(min_len=10).find(tokens, bounds)
    print(f"documents {len(corpus)} distinct ids {tokens.unique().numel()} largest id {tokens.max().item()}")
    print(f"documents with duplicated spans {duplicated}")


if __name__ == "__main__":
    main()
