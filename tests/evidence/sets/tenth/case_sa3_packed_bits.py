"""
title: binary embeddings are packed into bytes, distances are bit counts
expect: clean
thread: https://github.com/huggingface/sentence-transformers/pull/2559
measured: distances exact: True, own document first 100%

Expectation, written first: a byte holds eight signs exactly, xor and a table of bit counts
give the Hamming distance; sums are taken in int64.
"""
import torch

WEIGHTS = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8)
POPCOUNT = torch.tensor([bin(i).count("1") for i in range(256)], dtype=torch.uint8)


def pack(embeddings):
    bits = (embeddings > 0).to(torch.uint8).unflatten(-1, (-1, 8))
    return (bits * WEIGHTS).sum(-1, dtype=torch.uint8)


class BinaryIndex:
    def __init__(self, docs):
        self.codes = pack(docs)

    def distances(self, queries):
        mixed = pack(queries)[:, None] ^ self.codes[None]
        return POPCOUNT[mixed.long()].sum(-1)

    def search(self, queries, k):
        return self.distances(queries).topk(k, largest=False).indices


def main():
    gen = torch.Generator().manual_seed(0)
    docs = torch.randn(500, 512, generator=gen)
    queries = docs[:50] + 0.5 * torch.randn(50, 512, generator=gen)
    index = BinaryIndex(docs)
    exact = (torch.sign(queries).double() @ torch.sign(docs).double().T).mul(-0.5).add(256).long()
    same = torch.equal(index.distances(queries), exact)
    top = (index.search(queries, 1).flatten() == torch.arange(50)).float().mean().item()
    print(f"distances exact: {same}, own document first {100 * top:.0f}%")


main()
