"""
title: a batch holds far more tokens than max_tokens: the lengths of long documents wrap in a 16 bit size array
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/facebookresearch/fairseq/issues/3765
measured: 8 batches, largest 996540 cells, longest sample on record 2976; padding 79.1% of 1089882 cells
widened: 10 batches, largest 66436 cells, longest sample on record 66436; padding 5.1% of 240194 cells
innocent: 8 batches, largest 996540 cells, longest sample on record 2976; padding 79.1% of 1089882 cells
suspect: 21 int32 offsets: fits (under a million tokens)

Expectation, written first: The size array takes a 16 bit dtype since block_size fits, but a document longer than 65535 tokens does not:
    its size wraps to a handful. Batching by size then packs it as a short sample. The int32 slice offsets look narrow too, but the corpus
    has under a million tokens.
"""
import torch


class TokenBlockDataset:
    def __init__(self, tokens, doc_sizes, block_size):
        self.tokens = tokens
        ends = doc_sizes.cumsum(0)
        self.slice_indices = torch.stack([ends - doc_sizes, ends], 1).to(torch.int32)
        size_dtype = torch.uint16 if block_size < 65535 else torch.int64  # BORN
        self._sizes = (self.slice_indices[:, 1] - self.slice_indices[:, 0]).to(size_dtype)  # BORN

    def __len__(self):
        return len(self.slice_indices)

    @property
    def sizes(self):
        return self._sizes.to(torch.int64)

    def __getitem__(self, i):
        s, e = self.slice_indices[i].tolist()
        return self.tokens[s:e]


def batch_by_size(sizes, max_tokens):
    batches, current, longest = [], [], 0
    for i in sizes.argsort().tolist():
        longest = max(longest, int(sizes[i]))
        if current and longest * (len(current) + 1) > max_tokens:
            batches.append(current)
            current, longest = [], int(sizes[i])
        current.append(i)
    return batches + [current]


def collate(dataset, batch, pad=1):
    samples = [dataset[i] for i in batch]
    width = max(len(s) for s in samples)
    out = torch.full((len(samples), width), pad, dtype=torch.int16)
    for row, s in zip(out, samples):
        row[:len(s)] = s
    return out


torch.manual_seed(0)
doc_sizes = torch.randint(200, 3000, (60,))
doc_sizes[7], doc_sizes[31] = 65537 + 300, 65536 + 900
tokens = torch.randint(4, 30000, (int(doc_sizes.sum()),)).to(torch.int16)
dataset = TokenBlockDataset(tokens, doc_sizes, block_size=8192)
batches = batch_by_size(dataset.sizes, max_tokens=16384)
shapes = [collate(dataset, b).shape for b in batches]
cells = [a * b for a, b in shapes]
print(f"{len(batches)} batches, largest {max(cells)} cells, longest sample on record {int(dataset.sizes.max())}")
print(f"padding {100 * (1 - len(tokens) / sum(cells)):.1f}% of {sum(cells)} cells")
