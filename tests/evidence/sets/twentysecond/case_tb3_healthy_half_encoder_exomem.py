"""
title: text embeddings are computed in float16, upcast to float32 before normalising and storing
expect: clean
thread: https://github.com/Artexis10/exomem/pull/104
measured: drift below 5e-3: True same nearest note 20/20 hits 19/20
suspect: 20 ranking-unchanged

Expectation, written first: the encoder is halved and its output is upcast before the L2 norm and the float32 blob. Vectors
differ from the float32 encoder's by about 1e-3, which leaves the nearest note of every query as it was.
"""
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def _maybe_half(model, enabled):
    return model.half() if enabled else model


class BgeEncoder(nn.Module):
    def __init__(self, vocab=300, dim=64):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, dim_feedforward=128, dropout=0.0, batch_first=True)

    def forward(self, ids):
        return self.layer(self.norm(self.embeddings(ids)))[:, 0]


class Embedder:
    def __init__(self, model, half):
        self.model = _maybe_half(model.eval(), half)

    @torch.no_grad()
    def embed_texts(self, ids):
        vectors = self.model(ids)
        vectors = F.normalize(vectors.float(), dim=-1)
        return vectors.numpy().astype(np.float32)


class VectorStore:
    def __init__(self):
        self.rows = {}

    def upsert(self, key, vector):
        self.rows[key] = vector.astype(np.float32).tobytes()

    def matrix(self):
        return np.stack([np.frombuffer(blob, dtype=np.float32) for blob in self.rows.values()])

    def find(self, query, top=1):
        scores = self.matrix() @ query
        return [list(self.rows)[i] for i in np.argsort(-scores)[:top]]


def index_notes(embedder, notes):
    store = VectorStore()
    for start in range(0, len(notes), 50):
        for offset, vector in enumerate(embedder.embed_texts(notes[start:start + 50])):
            store.upsert(f"note-{start + offset}", vector)
    return store


def main():
    torch.manual_seed(0)
    base = BgeEncoder()
    notes = torch.randint(0, 300, (200, 12))
    queries = notes[::10].clone()
    queries[:, 8:] = torch.randint(0, 300, (len(queries), 4))
    results = {}
    for name, half in (("fp16", True), ("fp32", False)):
        embedder = Embedder(copy.deepcopy(base), half)
        store = index_notes(embedder, notes)
        vectors = embedder.embed_texts(queries)
        results[name] = (vectors, [store.find(v)[0] for v in vectors])
    drift = np.abs(results["fp16"][0] - results["fp32"][0]).max()
    same = sum(a == b for a, b in zip(results["fp16"][1], results["fp32"][1]))
    hits = sum(key == f"note-{10 * i}" for i, key in enumerate(results["fp16"][1]))
    print(f"drift below 5e-3: {drift < 5e-3} same nearest note {same}/20 hits {hits}/20")


if __name__ == "__main__":
    main()
