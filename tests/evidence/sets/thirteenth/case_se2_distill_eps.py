"""
title: a distillation loss over late-interaction scores is NaN under float16 autocast
expect: silent:underflow
thread: https://github.com/lightonai/pylate/issues/239
measured: loss nan, parameters with NaN 2 of 2
widened: loss 0.0904, parameters with NaN 0 of 2

Expectation, written first: the scores leave the autocast region in float16, where the guard of 1e-8 is zero; a query
whose candidate documents score alike divides zero by zero, and the NaN reaches every parameter. The innocent suspect
is the teacher's score table in float16: widening it alone leaves the NaN.
"""
import torch
import torch.nn.functional as F
from torch import nn


class ColBERT(nn.Module):
    def __init__(self, vocab=120, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.linear = nn.Linear(width, width, bias=False)

    def forward(self, ids):
        return F.normalize(self.linear(self.embed(ids)).float(), dim=-1)


def colbert_kd_scores(queries, documents):
    scores = torch.einsum("qsh,qdth->qdst", queries, documents)
    return scores.amax(-1).sum(-1)


class Distillation(nn.Module):
    def __init__(self, model, normalize_scores=True):
        super().__init__()
        self.model, self.normalize_scores = model, normalize_scores

    def forward(self, queries, documents, teacher):
        n, k, length = documents.shape
        d = self.model(documents.view(n * k, length)).view(n, k, length, -1)
        scores = colbert_kd_scores(self.model(queries), d)
        if self.normalize_scores:
            lowest, highest = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
            scores = (scores - lowest) / (highest - lowest + 1e-8)  # BORN
        return F.kl_div(F.log_softmax(scores.float(), -1), F.log_softmax(teacher.float(), -1), reduction="batchmean", log_target=True)


class Candidates:
    """the fourth query of a batch was mined with near duplicates: all its documents have the same text"""

    def __init__(self, gen):
        self.gen = gen

    def batch(self, n=8, k=4, length=10):
        queries = torch.randint(0, 120, (n, 5), generator=self.gen)
        documents = torch.randint(0, 120, (n, k, length), generator=self.gen)
        documents[3] = documents[3, :1]
        teacher = torch.rand(n, k, generator=self.gen)
        teacher[3] = 0.5
        return queries, documents, teacher.half()


def main():
    torch.manual_seed(11)
    model = ColBERT()
    loss_fn, data = Distillation(model), Candidates(torch.Generator().manual_seed(12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(20):
        queries, documents, teacher = data.batch()
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            loss = loss_fn(queries, documents, teacher)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    broken = sum(int(p.isnan().any()) for p in model.parameters())
    print(f"loss {loss.item():.4f}, parameters with NaN {broken} of {len(list(model.parameters()))}")


main()
