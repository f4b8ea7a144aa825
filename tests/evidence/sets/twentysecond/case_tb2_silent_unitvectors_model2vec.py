"""
title: half-precision static embeddings give NaN for empty texts and wrong lengths for small vectors
expect: silent:underflow|precision-loss
thread: https://github.com/MinishLab/model2vec/pull/369
measured: lengths [1.0, 1.0, 1.03, 1.01, nan, nan] | similarity of each text with itself [1.0, 1.0, 1.06, 1.03, nan, nan] | texts with nan 2
widened: lengths [1.0, 1.0, 1.0, 1.0, 0.0, 0.0] | similarity of each text with itself [1.0, 1.0, 1.0, 1.0, 0.0, 0.0] | texts with nan 0; innocent: lengths [1.0, 1.0, 1.03, 1.01, nan, nan] | similarity of each text with itself [1.0, 1.0, 1.06, 1.03, nan, nan] | texts with nan 2
suspect: line 24 - innocent: token ids stay below the vocabulary size of 512, int32 is ample

Expectation, written first: the pooled vectors keep the float16 of the embedding table; their squares underflow for
rare tokens of size 1e-4 and the guard of 1e-32 is zero in float16. An empty text becomes 0/0 and short vectors are
divided by a norm that is too small or zero. Normalising in float32 gives unit vectors.
"""
import torch

EPS = 1e-32


class Tokenizer:
    def __init__(self, vocab):
        self.index = {w: i for i, w in enumerate(vocab)}

    def encode(self, text):
        ids = [self.index[w] for w in text.split() if w in self.index]
        return torch.tensor(ids, dtype=torch.int32)


class StaticModel:
    def __init__(self, vectors, tokenizer, normalize=True):
        self.embedding = vectors
        self.tokenizer = tokenizer
        self.normalize = normalize

    @classmethod
    def from_table(cls, table, tokenizer, quantize_to=torch.float16):
        return cls(table.to(quantize_to), tokenizer)

    def _encode(self, text):
        ids = self.tokenizer.encode(text)
        if len(ids) == 0:
            return torch.zeros(self.embedding.shape[1], dtype=self.embedding.dtype)
        return self.embedding[ids].mean(dim=0)

    def encode(self, texts):
        out = torch.stack([self._encode(t) for t in texts])  # BORN
        if self.normalize:
            squares = out * out  # BORN
            norm = squares.sum(dim=1, keepdim=True).sqrt()
            out = out / (norm + EPS)  # BORN
        return out


def build_table(vocab_size, dim, gen):
    table = torch.randn(vocab_size, dim, generator=gen)
    weights = torch.ones(vocab_size, 1)
    weights[vocab_size // 2:] = 2.5e-4
    return table * weights


def main():
    gen = torch.Generator().manual_seed(10)
    vocab = [f"w{i}" for i in range(512)]
    model = StaticModel.from_table(build_table(512, 64, gen), Tokenizer(vocab))
    texts = ["w1 w2 w3", "w7 w19", "w300 w301", "w400", "", "unknown words"]
    vectors = model.encode(texts).float()
    lengths = vectors.norm(dim=1)
    sims = vectors @ vectors.T
    print("lengths", [round(v, 2) for v in lengths.tolist()])
    print("similarity of each text with itself", [round(v, 2) for v in sims.diagonal().tolist()])
    print("texts with nan", int(vectors.isnan().any(dim=1).sum()))


if __name__ == "__main__":
    main()
