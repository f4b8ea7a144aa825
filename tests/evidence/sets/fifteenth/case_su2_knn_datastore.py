"""
title: a nearest-neighbour language model keeps the next words of its datastore as int16
expect: silent:overflow|integer-overflow|wraparound|downcast
thread: https://github.com/urvashik/knnlm/issues/6
measured: perplexity 831.8, on late words 677540
widened: perplexity 4.3, on late words 4

Expectation, written first: word numbers above 32767 become negative, never equal the wanted word again, and the
neighbours give late words no probability. The float16 keys are far enough apart that the same neighbours are found.
"""
import numpy as np
import torch


class Datastore:
    def __init__(self, size, dim, fp16=True):  # BORN
        self.keys = np.zeros((size, dim), dtype=np.float16 if fp16 else np.float32)
        self.vals = np.zeros((size, 1), dtype=np.int16 if fp16 else np.int64)  # BORN
        self.used = 0

    def add(self, states, words):
        at = slice(self.used, self.used + len(words))
        self.keys[at] = states.numpy()
        self.vals[at, 0] = words.numpy().astype(self.vals.dtype)  # BORN
        self.used += len(words)

    def tensors(self):
        keys = torch.from_numpy(self.keys[: self.used].astype(np.float32))
        return keys, torch.from_numpy(self.vals[: self.used, 0].astype(np.int64))


class KnnModel:
    def __init__(self, store, k=8, lam=0.25):
        self.keys, self.vals = store.tensors()
        self.k, self.lam = k, lam

    def knn_prob(self, states, words):
        dist = torch.cdist(states, self.keys)
        near = dist.topk(self.k, largest=False)
        weight = torch.softmax(-near.values, dim=-1)
        return (weight * (self.vals[near.indices] == words[:, None])).sum(-1)

    def interpolate(self, lm_prob, states, words):
        return (1 - self.lam) * lm_prob + self.lam * self.knn_prob(states, words)


class Corpus:
    """a corpus of one topic: some words of a large vocabulary, each with its own region of state space"""

    def __init__(self, vocabulary, dim, seed, active=2500):
        self.gen = torch.Generator().manual_seed(seed)
        self.vocabulary = vocabulary
        self.words = torch.randperm(vocabulary, generator=self.gen)[:active]
        self.centre = torch.randn(vocabulary, dim, generator=self.gen)

    def sample(self, n):
        words = self.words[torch.randint(0, len(self.words), (n,), generator=self.gen)]
        states = self.centre[words] + 0.05 * torch.randn(n, self.centre.shape[1], generator=self.gen)
        return states, words

    def lm_prob(self, words):
        return 1 / (words + 1.0) / float(np.log(self.vocabulary))


def perplexity(prob):
    return (-prob.log()).mean().exp().item()


def main():
    corpus = Corpus(60_000, 16, seed=4)
    store = Datastore(20_000, 16)
    for _ in range(8):
        store.add(*corpus.sample(2000))
    model = KnnModel(store)
    states, words = corpus.sample(1500)
    prob = model.interpolate(corpus.lm_prob(words), states, words)
    late = words > 32_767
    print(f"perplexity {perplexity(prob):.1f}, on late words {perplexity(prob[late]):.0f}")


main()
