"""
title: kNN-LM gives rare words no probability: the datastore's token ids are negative beyond 32767
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/urvashik/knnlm/issues/6
measured: perplexity of frequent words 4.0, of rare words 79999.9
widened: perplexity of frequent words 4.0, of rare words 4.0
innocent: perplexity of frequent words 4.0, of rare words 79999.9
suspect: line 20 harmless (nearest neighbours stay nearest)

Expectation, written first: with the fp16 flag the values of the datastore become int16. The vocabulary of 60000 does not
fit, ids above 32767 are stored negative and never equal the target, so rare words get kNN probability 0 and a high
perplexity. The float16 keys, set by the same flag, find the same neighbours.
"""
import numpy as np
import torch


class Datastore:
    def __init__(self, size, dim, fp16=True):
        self.keys = np.zeros((size, dim), dtype=np.float16 if fp16 else np.float32)
        self.vals = np.zeros(size, dtype=np.int16 if fp16 else np.int64)  # BORN
        self.used = 0

    def add(self, keys, tokens):
        n = len(keys)
        self.keys[self.used:self.used + n] = keys.numpy().astype(self.keys.dtype)
        self.vals[self.used:self.used + n] = tokens.numpy().astype(self.vals.dtype)  # BORN
        self.used += n


class KNNModel:
    def __init__(self, store, k=8):
        self.keys = torch.from_numpy(store.keys[:store.used]).float()
        self.vals = torch.from_numpy(store.vals[:store.used]).long()
        self.k = k

    def get_knn_log_prob(self, queries, tgt):
        dists = -torch.cdist(queries, self.keys).pow(2)
        top, index = dists.topk(self.k, dim=-1)
        probs = torch.log_softmax(top, dim=-1)
        index_mask = torch.eq(self.vals[index], tgt.unsqueeze(-1)).float()
        index_mask[index_mask == 0] = -10000
        index_mask[index_mask == 1] = 0
        return torch.logsumexp(probs + index_mask, dim=-1)


def combine(knn_p, lm_p, lmbda=0.25):
    stacked = torch.stack([lm_p + np.log(1 - lmbda), knn_p + np.log(lmbda)])
    return torch.logsumexp(stacked, dim=0)


def main():
    torch.manual_seed(0)
    vocab, dim = 60000, 16
    words = torch.randint(0, vocab, (120,))
    contexts = torch.randn(120, dim)
    store = Datastore(1200, dim, fp16=True)
    picks = torch.randint(0, 120, (1200,))
    store.add(contexts[picks] + 0.1 * torch.randn(1200, dim), words[picks])
    knn = KNNModel(store)
    queries = contexts + 0.1 * torch.randn(120, dim)
    lm_log_prob = torch.full((120,), float(-np.log(vocab)))
    combined = combine(knn.get_knn_log_prob(queries, words), lm_log_prob)
    ppl = lambda keep: torch.exp(-combined[keep].mean()).item()
    print(f"perplexity of frequent words {ppl(words < 32768):.1f}, of rare words {ppl(words >= 32768):.1f}")


main()
