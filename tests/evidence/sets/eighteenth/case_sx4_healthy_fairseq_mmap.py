"""
title: token dataset written as uint16 because the vocabulary is below 65500
expect: clean
thread: https://github.com/facebookresearch/fairseq/pull/816
measured: sentences intact True, largest id 49999, mean embedding 0.0294
suspect: line 21 harmless (every id of the vocabulary fits)

Expectation, written first: the builder picks uint16 for a vocabulary of 50000 and the reader turns each item into int64
before it reaches the embedding. No id exceeds 65535, the round trip is exact, and the batch looks the same as with int32.
"""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


def best_fitting_dtype(vocab_size=None):
    if vocab_size is not None and vocab_size < 65500:
        return np.uint16
    return np.int32


class MMapIndexedDatasetBuilder:
    def __init__(self, path, dtype):
        self.path, self.dtype, self.sizes = path, dtype, []
        self.file = open(path, "wb")

    def add_item(self, tensor):
        array = tensor.numpy().astype(self.dtype)
        self.file.write(array.tobytes())
        self.sizes.append(len(array))

    def finalize(self):
        self.file.close()
        return np.array(self.sizes)


class MMapIndexedDataset:
    def __init__(self, path, dtype, sizes):
        self.bin_buffer = np.memmap(path, dtype=dtype, mode="r")
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])

    def __getitem__(self, i):
        piece = self.bin_buffer[self.offsets[i]:self.offsets[i + 1]]
        return torch.from_numpy(piece.astype(np.int64))

    def __len__(self):
        return len(self.offsets) - 1


def collate(items, pad):
    length = max(len(item) for item in items)
    batch = torch.full((len(items), length), pad)
    for row, item in zip(batch, items):
        row[:len(item)] = item
    return batch


def main():
    torch.manual_seed(0)
    vocab, pad = 50000, 1
    sentences = [torch.randint(4, vocab, (int(n),)) for n in torch.randint(5, 20, (50,))]
    sentences[0][0] = vocab - 1
    dtype = best_fitting_dtype(vocab)
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, "train.bin")
        builder = MMapIndexedDatasetBuilder(path, dtype)
        for sentence in sentences:
            builder.add_item(sentence)
        dataset = MMapIndexedDataset(path, dtype, builder.finalize())
        intact = all(torch.equal(dataset[i], sentences[i]) for i in range(len(dataset)))
        batch = collate([dataset[i] for i in range(8)], pad)
        embedded = nn.EmbeddingBag(vocab, 4, padding_idx=pad)(batch)
        print(f"sentences intact {intact}, largest id {int(batch.max())}, mean embedding {embedded.mean().item():.4f}")
        del dataset


main()
