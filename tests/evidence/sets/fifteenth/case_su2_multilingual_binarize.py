"""
title: the binarised corpus of a multilingual distillation run is cast to uint16
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/huggingface/transformers/issues/2825
measured: tokens that survive 55.9%, highest token 65515, teacher features alike 0.73
widened: tokens that survive 100.0%, highest token 119522, teacher features alike 1.00

Expectation, written first: the vocabulary has 119547 entries, numbers above 65535 come back as other words, and
a student trained on them never sees almost half of the vocabulary. The attention mask as int8 and the lengths as int16
fit.
"""
import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertModel


class FakeTokenizer:
    vocab_size = 119547

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def encode(self, length):
        return self.rng.integers(1000, self.vocab_size, length)


class Binarizer:
    """collects encoded lines and keeps them as one compact list"""

    def __init__(self, tokenizer):
        self.tokenizer, self.lines = tokenizer, []

    def add(self, length):
        ids = self.tokenizer.encode(length)
        self.lines.append(ids)
        return ids

    def dump(self):
        return [np.uint16(line) for line in self.lines]  # BORN


class LmSeqsDataset:
    def __init__(self, lines):
        self.lines = lines
        self.lengths = np.array([len(line) for line in lines], dtype=np.int16)

    def batch(self, index):
        top = int(self.lengths[index].max())
        ids = torch.zeros(len(index), top, dtype=torch.long)
        mask = torch.zeros(len(index), top, dtype=torch.int8)
        for row, i in enumerate(index):
            ids[row, : self.lengths[i]] = torch.from_numpy(self.lines[i].astype(np.int64))
            mask[row, : self.lengths[i]] = 1
        return ids, mask


@torch.no_grad()
def features(model, ids, mask):
    hidden = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    return hidden[:, 0]


def main():
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=FakeTokenizer.vocab_size, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    teacher = DistilBertModel(config).eval()
    binarizer = Binarizer(FakeTokenizer(seed=1))
    plain = [binarizer.add(int(n)) for n in np.random.default_rng(2).integers(20, 60, 200)]
    dataset = LmSeqsDataset(binarizer.dump())
    index = np.arange(24)
    ids, mask = dataset.batch(index)
    truth, _ = LmSeqsDataset(plain).batch(index)
    seen = np.unique(np.concatenate(dataset.lines)).max()
    same = (ids == truth)[mask.bool()].double().mean().item()
    close = torch.cosine_similarity(features(teacher, ids, mask), features(teacher, truth, mask)).mean().item()
    print(f"tokens that survive {100 * same:.1f}%, highest token {seen}, teacher features alike {close:.2f}")


main()
