"""
title: Cross-encoder applies the sigmoid in bfloat16 and the ranking falls back on ties
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/embeddings-benchmark/mteb/issues/4932
measured: MRR@10 = 0.0937, share of tied scores = 0.908
widened: MRR@10 = 1.0000, share of tied scores = 0.001

Expectation, written first.  The logits of relevant and hard negative passages
lie between 4 and 9.  The activation is applied after the logits were cast to
bfloat16, and near 1 its step is 0.0039: dozens of candidates get the score
0.9961 or 1.0 and a stable sort keeps the retrieval order, so the reranker
does nothing.  BORN is the cast of the logits to bfloat16; a float32 sigmoid
separates them.
"""
import torch
from torch import nn

torch.manual_seed(0)


class CrossEncoder(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.direction = nn.Parameter(torch.randn(dim) / dim ** 0.5, requires_grad=False)

    def forward(self, query, passages):
        return 6.5 + 1.2 * ((passages - query) @ self.direction)


class Reranker:
    def __init__(self, model):
        self.model, self.activation = model, nn.Sigmoid()

    @torch.no_grad()
    def predict(self, query, passages):
        logits = self.model(query, passages)
        logits = logits.to(torch.bfloat16)  # BORN
        return self.activation(logits)

    def rank(self, query, passages):
        return torch.sort(self.predict(query, passages), descending=True, stable=True).indices


def make_query(model, seed, candidates=60):
    g = torch.Generator().manual_seed(seed)
    query = torch.randn(24, generator=g)
    passages = query + torch.randn(candidates, 24, generator=g)
    gold = torch.argmax((passages - query) @ model.direction).item()
    move = torch.randperm(candidates, generator=g)
    return query, passages[move], (move == gold).nonzero().item()


def main(queries=200):
    model = CrossEncoder()
    reranker, reciprocal, ties = Reranker(model), 0.0, 0.0
    for seed in range(queries):
        query, passages, gold = make_query(model, seed)
        order = reranker.rank(query, passages)
        position = (order == gold).nonzero().item()
        reciprocal += 1.0 / (position + 1) if position < 10 else 0.0
        ties += 1 - torch.unique(reranker.predict(query, passages)).numel() / passages.size(0)
    print(f"MRR@10 = {reciprocal / queries:.4f}, share of tied scores = {ties / queries:.3f}")


if __name__ == "__main__":
    main()
