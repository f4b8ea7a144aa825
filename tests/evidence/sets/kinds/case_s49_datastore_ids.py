"""
title: the values of a datastore are kept in int16 to save space
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/urvashik/knnlm/issues/6

Expectation, written first: word numbers above 32767 come back negative, so the neighbours' votes for rare words go
elsewhere. Keys in float16 keep the order of the neighbours.
"""
import torch

VOCAB = 60_000


class Datastore:
    def __init__(self, size, dim, fp16=True):
        self.keys = torch.zeros(size, dim, dtype=torch.float16 if fp16 else torch.float32)
        self.values = torch.zeros(size, dtype=torch.int16 if fp16 else torch.int64)  # BORN
        self.filled = 0

    def add(self, keys, values):
        stop = self.filled + len(keys)
        self.keys[self.filled : stop] = keys
        self.values[self.filled : stop] = values
        self.filled = stop

    def search(self, query, k=4):
        distance = torch.cdist(query, self.keys[: self.filled].float())
        near = distance.topk(k, largest=False)
        return near.values, self.values[near.indices].long()


class KNNModel:
    def __init__(self, store):
        self.store = store

    def predict(self, query):
        distances, words = self.store.search(query)
        return words.mode(-1).values


g = torch.Generator().manual_seed(1)
words = torch.randint(0, VOCAB, (300,), generator=g)
centres = torch.randn(300, 16, generator=g)
store = Datastore(3000, 16)
for _ in range(10):
    store.add(centres + 0.05 * torch.randn(300, 16, generator=g), words)
found = KNNModel(store).predict(centres)
print(f"words predicted {100 * (found == words).double().mean().item():.1f}%")
