"""
title: an int8 index scores its documents with an int8 matrix product
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/triton-lang/triton/issues/2296
measured: recall@10 0.006
widened: recall@10 0.985
fix_at: 24

Expectation, written first: the product of int8 matrices is int8 and each dot product of 64
codes wraps many times; the ranking is noise.
"""
import torch


class Int8Index:
    def __init__(self, docs):
        self.scale = docs.abs().max() / 127
        self.codes = self.encode(docs)

    def encode(self, vectors):
        return (vectors / self.scale).round().clamp(-127, 127).to(torch.int8)  # BORN

    def search(self, queries, k):
        scores = self.encode(queries) @ self.codes.T
        return scores.topk(k, dim=-1).indices


def recall(found, truth):
    hits = [len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist())]
    return sum(hits) / truth.numel()


def main():
    gen = torch.Generator().manual_seed(0)
    centres = torch.randn(40, 64, generator=gen)
    docs = centres[torch.randint(0, 40, (2000,), generator=gen)] + 0.7 * torch.randn(2000, 64, generator=gen)
    docs = torch.nn.functional.normalize(docs, dim=-1)
    queries = torch.nn.functional.normalize(docs[:100] + 0.05 * torch.randn(100, 64, generator=gen), dim=-1)
    truth = (queries.double() @ docs.double().T).topk(10, dim=-1).indices
    print(f"recall@10 {recall(Int8Index(docs).search(queries, 10), truth):.3f}")


main()
