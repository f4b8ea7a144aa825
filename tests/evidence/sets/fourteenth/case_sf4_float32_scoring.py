"""
title: bfloat16 sentence embeddings are scored in float32
expect: clean
thread: https://github.com/huggingface/sentence-transformers/pull/3892
measured: MRR@10 0.87, equal scores 0

Expectation, written first: the embeddings are stored in bfloat16 and raised to float32 before they are normalised and
multiplied; the scores have no ties, and the ranking is the one of float64 embeddings.
"""
import torch
from torch import nn


class Encoder(nn.Module):
    """a bag of words with random word vectors"""

    def __init__(self, vocab=400, width=48):
        super().__init__()
        self.words = nn.Embedding(vocab, width)

    def encode(self, sentences):
        rows = []
        for ids in sentences:
            v = self.words(ids).mean(0)
            rows.append(v.to(torch.bfloat16))
        return torch.stack(rows)


def cos_sim(a, b):
    a = nn.functional.normalize(a.float(), dim=-1)
    b = nn.functional.normalize(b.float(), dim=-1)
    return a @ b.T


class RetrievalEvaluator:
    def __init__(self, k=10):
        self.k = k

    def __call__(self, scores, relevant):
        order = scores.argsort(dim=1, descending=True, stable=True)
        ranks = (order == relevant[:, None]).int().argmax(1) + 1
        ties = sum(scores.shape[1] - len(row.unique()) for row in scores)
        return (1 / ranks.double()).where(ranks <= self.k, 0.0).mean().item(), ties


def corpus(gen, documents=150, words=30, vocab=400):
    return [torch.randint(0, vocab, (words,), generator=gen) for _ in range(documents)]


def queries(documents, gen, n=60, words=9):
    relevant = torch.randint(0, len(documents), (n,), generator=gen)
    asked = [documents[i][torch.randperm(30, generator=gen)[:words]] for i in relevant.tolist()]
    return asked, relevant


@torch.no_grad()
def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    model, evaluator = Encoder(), RetrievalEvaluator()
    documents = corpus(gen)
    asked, relevant = queries(documents, gen)
    mrr, ties = evaluator(cos_sim(model.encode(asked), model.encode(documents)), relevant)
    print(f"MRR@10 {mrr:.2f}, equal scores {ties}")


main()
