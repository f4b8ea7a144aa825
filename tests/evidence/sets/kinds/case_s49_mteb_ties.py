"""
title: an encoder that returns bf16 tensors is scored in bf16, so the ranking falls into ties
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/embeddings-benchmark/mteb/issues/4932

Expectation, written first: cosine scores of a homogeneous corpus lie between 0.9 and 1; bf16 has a dozen values there, so
the document that fits is one of many with the same score and recall at one falls. Query lengths in int16 are innocent.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=500, dim=64):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.common = nn.Parameter(torch.ones(dim) * 2.5)

    def forward(self, ids):
        return self.table(ids).mean(1) + self.common


class ModelWrapper:
    def __init__(self, model, dtype):
        self.model, self.dtype = model.eval(), dtype

    @torch.no_grad()
    def encode(self, ids):
        return self.model(ids).to(self.dtype)  # BORN


def cos_sim(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    return a @ b.T


def recall_at_1(model, queries, documents, lengths):
    scores = cos_sim(model.encode(queries), model.encode(documents))
    order = scores.argsort(dim=-1, descending=True)
    hits = order[:, 0] == torch.arange(len(queries))
    return hits.double().mean().item(), lengths.double().mean().item()


def main():
    torch.manual_seed(3)
    documents = torch.randint(0, 500, (1, 24)).repeat(400, 1)
    documents.scatter_(1, torch.randint(0, 24, (400, 8)), torch.randint(0, 500, (400, 8)))
    queries = documents.clone()
    queries.scatter_(1, torch.randint(0, 24, (400, 1)), torch.randint(0, 500, (400, 1)))
    lengths = torch.full((400,), 24, dtype=torch.int16)
    wrapper = ModelWrapper(Encoder(), torch.bfloat16)
    recall, length = recall_at_1(wrapper, queries, documents, lengths)
    print(f"recall@1 {100 * recall:.1f}% over queries of {length:.0f} tokens")


main()
