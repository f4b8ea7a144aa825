"""
title: token ids are carried as int32 to save memory, the vocabulary fits many times over
expect: clean
thread: https://github.com/huggingface/tokenizers/issues/1187
measured: largest id 31999 texts restored 3 | tokens [4, 7, 5] scores [0.575, 0.529, 0.474]
suspect: line 49 - innocent: narrowing, but the largest id is 31999 and int32 reaches two billion

Expectation, written first: the tokenizer's int64 ids are narrowed to int32 before they go to the model. All ids lie
below the vocabulary size, so no id changes; the embedding takes int32 and the round trip through decode gives the
text back. The float bag of counts is built from exact integers as well.
"""
import torch
from torch import nn

VOCAB_SIZE = 32000


class Encoding(dict):
    @property
    def input_ids(self):
        return self["input_ids"]


class WordLevelTokenizer:
    pad_token_id = 0

    def __init__(self, words):
        stride = (VOCAB_SIZE - 1) // len(words)
        self.vocab = {w: VOCAB_SIZE - 1 - i * stride for i, w in enumerate(words)}
        self.inverse = {i: w for w, i in self.vocab.items()}

    def __call__(self, texts):
        rows = [[self.vocab[w] for w in t.split()] for t in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([r + [self.pad_token_id] * (longest - len(r)) for r in rows])
        return Encoding(input_ids=ids, attention_mask=(ids != self.pad_token_id).long())

    def batch_decode(self, ids):
        return [" ".join(self.inverse[i] for i in row if i != self.pad_token_id) for row in ids.tolist()]


class TensorRTStyleRunner(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB_SIZE, dim, padding_idx=0)
        self.score = nn.Linear(dim, 1)

    def bind(self, encoding):
        return {name: tensor.to(torch.int32) for name, tensor in encoding.items()}

    @torch.no_grad()
    def forward(self, bindings):
        ids, mask = bindings["input_ids"], bindings["attention_mask"]
        hidden = self.embed(ids) * mask.unsqueeze(-1)
        pooled = hidden.sum(1) / mask.sum(1, keepdim=True)
        return torch.sigmoid(self.score(pooled)).squeeze(-1)


def main():
    torch.manual_seed(0)
    words = "the quick brown fox jumps over a lazy dog while it rains in paris today".split()
    tokenizer = WordLevelTokenizer(words)
    texts = ["the quick brown fox", "a lazy dog jumps over the fox", "it rains in paris today"]
    runner = TensorRTStyleRunner().eval()
    bindings = runner.bind(tokenizer(texts))
    scores = runner(bindings)
    decoded = tokenizer.batch_decode(bindings["input_ids"])
    print("largest id", int(bindings["input_ids"].max()), "texts restored", sum(a == b for a, b in zip(texts, decoded)))
    print("tokens", bindings["attention_mask"].sum(1).tolist(), "scores", [round(s, 3) for s in scores.tolist()])


if __name__ == "__main__":
    main()
