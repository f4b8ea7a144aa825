"""
title: perplexity per position bucket falls with every further batch: the sums stand still in bfloat16
expect: silent:lost-update|precision-loss
thread: https://github.com/fla-org/flash-linear-attention/pull/1222
measured: ppl per bucket after 100 blocks 62.8 64.1, after 700 blocks 18.6 18.6
widened: ppl per bucket after 100 blocks 73.3 75.1, after 700 blocks 74.6 74.8
innocent: ppl per bucket after 100 blocks 62.8 64.1, after 700 blocks 18.6 18.6
suspect: line 37 harmless (single losses to a part in 250, averaged)

Expectation, written first: the running sums of the buckets are made in the model's bfloat16. After some hundred batches a
batch's share is less than half a step of the sum and is lost, while the token count goes on, so the reported perplexity
sinks towards 1. The cross entropy taken on bfloat16 logits looks guilty but is right to the second digit.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PerplexityEvaluator:
    def __init__(self, model, block_size=16, bucket_size=8):
        self.model = model
        self.block_size = block_size
        self.bucket_size = bucket_size

    def batchify(self, stream):
        for start in range(0, len(stream) - self.block_size, self.block_size):
            yield stream[start:start + self.block_size + 1][None]

    @torch.no_grad()
    def evaluate(self, stream):
        num_buckets = self.block_size // self.bucket_size
        nll_sum = torch.zeros(num_buckets, dtype=self.model.dtype)  # BORN
        tokens = torch.zeros(num_buckets, dtype=torch.long)
        for batch in self.batchify(stream):
            logits = self.model(batch[:, :-1])[0]
            labels = batch[0, 1:]
            nll = F.cross_entropy(logits, labels, reduction="none")
            for b in range(num_buckets):
                part = nll[b * self.bucket_size:(b + 1) * self.bucket_size]
                nll_sum[b] += part.sum()  # BORN
                tokens[b] += len(part)
        return torch.exp(nll_sum.float() / tokens)


class TinyGLA(nn.Module):
    def __init__(self, vocab=64, dim=16):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.gate = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.dtype = torch.bfloat16

    def forward(self, input_ids):
        h = self.embeddings(input_ids)
        h = h + torch.sigmoid(self.gate(h)) * h.cumsum(dim=1) / 16
        return self.lm_head(self.norm(h))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    evaluator = PerplexityEvaluator(TinyGLA().to(torch.bfloat16).eval())
    stream = torch.randint(0, 64, (16 * 700 + 1,))
    short = evaluator.evaluate(stream[:16 * 100 + 1])
    full = evaluator.evaluate(stream)
    row = lambda p: " ".join(f"{v:.1f}" for v in p.tolist())
    print(f"ppl per bucket after 100 blocks {row(short)}, after 700 blocks {row(full)}")


main()
