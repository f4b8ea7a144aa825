"""
title: Score distillation goes NaN when one group of documents scores alike under fp16 autocast
expect: silent:underflow|promotion|downcast
thread: https://github.com/lightonai/pylate/issues/239
measured: step 0 loss nan parameters with nan gradients 6 | step 1 loss nan parameters with nan gradients 6 | step 2 loss nan parameters with nan gradients 6
widened: step 0 loss 0.7184 parameters with nan gradients 0 | step 1 loss 0.4441 parameters with nan gradients 0 | step 2 loss 0.3674 parameters with nan gradients 0
innocent: step 0 loss nan parameters with nan gradients 6 | step 1 loss nan parameters with nan gradients 6 | step 2 loss nan parameters with nan gradients 6
suspect: 60 moderate

Expectation, written first: Under float16 autocast the late-interaction scores come out as float16, and the guard 1e-8 added to max - min is rounded to
nothing, so a group whose scores are equal is 0/0 and the loss and every gradient are NaN. The teacher's scores in float16 look as suspicious
but only enter a softmax of moderate numbers.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def colbert_scores(query, docs, mask):
    sim = torch.einsum("bqd,bnkd->bnqk", query, docs)
    sim = sim.masked_fill(~mask[:, :, None, :], -1.0)
    return sim.max(dim=-1).values.sum(dim=-1)


class ColBERT(nn.Module):
    def __init__(self, vocab=200, hidden=48, dim=16):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, hidden)
        self.encoder = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.dense = nn.Linear(hidden, dim, bias=False)

    def forward(self, tokens):
        out = self.dense(self.encoder(self.embeddings(tokens)))
        return F.normalize(out, dim=-1)


class Distillation(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss_function = nn.KLDivLoss(reduction="batchmean", log_target=True)

    def forward(self, query_ids, doc_ids, mask, labels):
        query, docs = self.model(query_ids), self.model(doc_ids)
        scores = colbert_scores(query, docs, mask)  # BORN
        max_scores = scores.max(dim=1, keepdim=True).values
        min_scores = scores.min(dim=1, keepdim=True).values
        epsilon = 1e-8  # BORN
        scores = (scores - min_scores) / (max_scores - min_scores + epsilon)  # BORN
        return self.loss_function(F.log_softmax(scores.float(), dim=-1), F.log_softmax(labels.float(), dim=-1))


class DistillationBatch:
    def __init__(self):
        g = torch.Generator().manual_seed(3)
        self.query_ids = torch.randint(1, 200, (2, 6), generator=g)
        self.doc_ids = torch.randint(1, 200, (2, 4, 10), generator=g)
        self.doc_ids[1] = self.doc_ids[1, :1]
        self.mask = torch.ones(2, 4, 10, dtype=torch.bool)
        self.teacher = torch.tensor([[9.0, 4.25, 3.5, 0.5], [6.5, 6.5, 6.5, 6.5]], dtype=torch.float16)


def main():
    torch.manual_seed(0)
    batch = DistillationBatch()
    loss_module = Distillation(ColBERT())
    optimizer = torch.optim.AdamW(loss_module.parameters(), lr=1e-3)
    for step in range(3):
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            loss = loss_module(batch.query_ids, batch.doc_ids, batch.mask, batch.teacher)
        optimizer.zero_grad()
        loss.backward()
        bad = sum(int(p.grad.isnan().any()) for p in loss_module.parameters())
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} parameters with nan gradients {bad}")


if __name__ == "__main__":
    main()
