"""
title: under float16 autocast the 1e-8 that guards a min-max normalisation is zero; a flat group gives 0/0
expect: silent:underflow
modes: diagnose

lightonai/pylate#239. Four documents scored equally: max - min + 1e-8 is 0 in float16; the evaluation is NaN and the checkpoint is thrown away.
Measured: Divergence NaN; 0.3867 with scores.float().
BORN is the normalisation (scores.float(), or clamp(min=1e-3)); equally right is the product that leaves autocast in float16.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.project = nn.Embedding(50, width), nn.Linear(width, width, bias=False)

    def forward(self, tokens):
        return F.normalize(self.project(self.embed(tokens)).float(), dim=-1)


def late_interaction(query, documents):
    similarity = torch.einsum("bqd,bnkd->bnqk", query, documents)  # BORN
    return similarity.amax(-1).sum(-1)


def normalized(scores):
    low, high = scores.amin(-1, keepdim=True), scores.amax(-1, keepdim=True)
    return (scores - low) / (high - low + 1e-8)  # BORN


class Evaluator:
    """How far the student's ranking is from the teacher's."""

    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def __call__(self, queries, documents, teacher):
        with torch.autocast("cpu", dtype=torch.float16):
            scores = late_interaction(self.model(queries), self.model(documents))
            student = normalized(scores)
        return float(F.kl_div(student.float().log_softmax(-1), teacher.softmax(-1), reduction="batchmean"))


torch.manual_seed(0)
evaluate = Evaluator(Encoder().eval())
queries = torch.randint(0, 50, (2, 5))
documents = torch.randint(0, 50, (2, 4, 6))
documents[1] = documents[1, :1]  # one passage, four times: a deduplication that failed
divergence = evaluate(queries, documents, torch.randn(2, 4))
best = divergence if divergence < 10.0 else None
print("divergence", divergence, "checkpoint kept:", best is not None)
