"""
title: the data store of a nearest neighbour language model keeps its token ids in int16 when it is asked for fp16
expect: silent:overflow|integer-overflow|wraparound|downcast|integer-truncation
thread: https://github.com/urvashik/knnlm/issues/6
measured: perplexity 20.8
widened: perplexity 2.0

Expectation, written first: ids from 32768 on come back negative and never match the target, so the neighbours give
rare words no probability. The keys are float16 by the same switch; the distances hardly notice.
"""
import torch


class DataStore:
    def __init__(self, size, dim, fp16):
        self.keys = torch.zeros(size, dim, dtype=torch.float16 if fp16 else torch.float32)
        self.vals = torch.zeros(size, dtype=torch.int16 if fp16 else torch.int64)  # BORN
        self.used = 0

    def add(self, keys, vals):
        span = slice(self.used, self.used + len(keys))
        self.keys[span] = keys.to(self.keys.dtype)
        self.vals[span] = vals.to(self.vals.dtype)
        self.used += len(keys)

    def neighbours(self, query, k):
        d = torch.cdist(query, self.keys[: self.used].float())
        near = d.topk(k, largest=False)
        return near.values, self.vals[near.indices].long()


class KNNModel:
    def __init__(self, store, lm, k=8, lam=0.5, temperature=1.0):
        self.store, self.lm, self.k, self.lam, self.temperature = store, lm, k, lam, temperature

    def log_prob(self, query, target):
        d, vals = self.store.neighbours(query, self.k)
        weights = (-d / self.temperature).softmax(-1)
        p_knn = (weights * (vals == target[:, None])).sum(-1)
        p_lm = self.lm(query, target)
        return (self.lam * p_knn + (1 - self.lam) * p_lm).log()


def corpus(n, table, gen):
    ids = torch.randint(0, len(table), (n,), generator=gen)
    return table[ids] + 0.3 * torch.randn(n, table.shape[1], generator=gen), ids


def main():
    gen = torch.Generator().manual_seed(9)
    vocab = 50_000
    table = torch.randn(vocab, 24, generator=gen)
    seen = torch.randperm(vocab, generator=gen)[:600]
    store = DataStore(6000, 24, fp16=True)  # BORN
    context, which = corpus(6000, table[seen], gen)
    store.add(context, seen[which])
    model = KNNModel(store, lm=lambda q, t: torch.full((len(q),), 1e-3))
    context, which = corpus(1500, table[seen], gen)
    nll = -model.log_prob(context, seen[which]).mean()
    print(f"perplexity {nll.exp():.1f}")


main()
