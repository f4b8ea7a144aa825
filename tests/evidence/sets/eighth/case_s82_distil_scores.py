"""
title: distilling a ranker: scores are scaled to 0..1 with a small guard in the divisor
expect: silent:underflow|precision-loss|downcast
thread: https://github.com/lightonai/pylate/issues/239
measured: mean loss nan, embeddings lost 32
widened: mean loss 0.0742, embeddings lost 0
fix_at: 37

Expectation, written first: the guard of 1e-8 is zero in float16, so a query whose
documents all score alike divides zero by zero and the loss is nan.
BORN is the line where the scores become half; float32 scores keep the guard alive.
"""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.table = nn.EmbeddingBag(vocab, dim, mode="mean")

    def forward(self, tokens):
        return nn.functional.normalize(self.table(tokens), dim=-1)


class Distillation(nn.Module):
    def __init__(self, student, eps=1e-8):
        super().__init__()
        self.student, self.eps = student, eps

    def scores(self, query, docs):
        q = self.student(query[None])
        d = self.student(docs)
        return (d @ q.t()).squeeze(1).to(torch.float16)  # BORN

    def scale(self, s):
        low, high = s.min(), s.max()
        return (s - low) / (high - low + self.eps)

    def forward(self, query, docs, teacher):
        s = self.scale(self.scores(query, docs))
        log_s = torch.log_softmax(s.float(), 0)
        log_t = torch.log_softmax(teacher, 0)
        return nn.functional.kl_div(log_s, log_t, log_target=True, reduction="sum")


def queries(gen, count=5):
    for i in range(count):
        query = torch.randint(0, 50, (4,), generator=gen)
        docs = torch.randint(0, 50, (6, 5), generator=gen)
        if i == 3:
            docs = docs[:1].repeat(6, 1)
        teacher = torch.rand(6, generator=gen)
        yield query, docs, teacher


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    loss_fn = Distillation(Encoder())
    opt = torch.optim.SGD(loss_fn.parameters(), 0.1)
    total = 0.0
    for query, docs, teacher in queries(gen):
        loss = loss_fn(query, docs, teacher)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    dead = int(loss_fn.student.table.weight.isnan().any(1).sum())
    print("mean loss %.4f, embeddings lost %d" % (total / 5, dead))


if __name__ == "__main__":
    main()
