"""
title: nearest documents from vectors kept in half precision
expect: clean
thread: https://github.com/MinishLab/model2vec/pull/369

Expectation, written first: the vectors are stored in half and one of them is all zero,
but norms and products are taken in float32 with a guard that float32 can hold, so the ranking
is that of the float32 vectors up to rounding that does not change the answers.
"""
import torch


class Library:
    def __init__(self, vectors, dtype=torch.float16):
        self.vectors = vectors.to(dtype)

    def unit(self, eps=1e-12):
        v = self.vectors.float()
        return v / v.norm(dim=1, keepdim=True).clamp(min=eps)

    def nearest(self, queries, k):
        q = queries / queries.norm(dim=1, keepdim=True)
        return (q @ self.unit().t()).topk(k, dim=1)


class Corpus:
    """Topics with documents at growing angles, and one empty document."""

    def __init__(self, topics, per_topic, dim, seed):
        gen = torch.Generator().manual_seed(seed)
        self.centres = torch.nn.functional.normalize(torch.randn(topics, dim, generator=gen), dim=1)
        rows = []
        for c in self.centres:
            for step in range(per_topic):
                away = torch.randn(dim, generator=gen)
                away = away - (away @ c) * c
                rows.append(c + 0.1 * (step + 1) * away / away.norm())
        self.documents = torch.cat([torch.stack(rows), torch.zeros(1, dim)])
        self.per_topic = per_topic

    def queries(self):
        return self.centres


def main():
    corpus = Corpus(topics=12, per_topic=8, dim=64, seed=0)
    library = Library(corpus.documents)
    score, index = library.nearest(corpus.queries(), k=5)
    wanted = torch.arange(12)[:, None] * corpus.per_topic + torch.arange(5)
    print("right places %d of 60, best score %.3f, finite %s"
          % (int((index == wanted).sum()), score.max().item(), bool(score.isfinite().all())))


if __name__ == "__main__":
    main()
