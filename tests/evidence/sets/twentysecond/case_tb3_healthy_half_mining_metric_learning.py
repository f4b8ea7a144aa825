"""
title: metric learning on float16 embeddings with finfo-based fill values and a float32 loss
expect: clean
thread: https://github.com/KevinMusgrave/pytorch-metric-learning/pull/161
measured: torch.float16 loss 0.26 fill finite True grads finite True | torch.float32 loss 0.26 fill finite True grads finite True | within one percent True
suspect: 39 finite-in-half

Expectation, written first: the embeddings arrive in float16, the miner masks its similarities with torch.finfo of their own
dtype instead of a fixed constant, and the loss is taken in float32. Fill values stay finite and the loss agrees with the
float32 run to about one percent.
"""
import torch
import torch.nn.functional as F
from torch import nn


def neg_inf(dtype):
    return torch.finfo(dtype).min


def pos_inf(dtype):
    return torch.finfo(dtype).max


class CosineSimilarity:
    def __call__(self, embeddings):
        normalized = F.normalize(embeddings.float(), dim=1).to(embeddings.dtype)
        return normalized @ normalized.t()


class BatchHardMiner:
    def __init__(self, distance):
        self.distance = distance

    def __call__(self, embeddings, labels):
        sim = self.distance(embeddings)
        same = labels[:, None] == labels[None, :]
        eye = torch.eye(len(labels), dtype=torch.bool)
        positive = sim.masked_fill(~same | eye, pos_inf(sim.dtype))
        negative = sim.masked_fill(same, neg_inf(sim.dtype))
        return positive.argmin(dim=1), negative.argmax(dim=1), torch.isfinite(positive).all()


class TripletMarginLoss(nn.Module):
    def __init__(self, margin=0.2):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, pos, neg):
        anchors = F.normalize(embeddings.float(), dim=1)
        ap = (anchors * anchors[pos]).sum(dim=1)
        an = (anchors * anchors[neg]).sum(dim=1)
        violation = F.relu(an - ap + self.margin)
        return violation[violation > 0].mean()


def build_trunk():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))


def make_data(classes=8, per_class=6):
    generator = torch.Generator().manual_seed(2)
    centers = torch.randn(classes, 16, generator=generator)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return centers[labels] + 0.6 * torch.randn(len(labels), 16, generator=generator), labels


def main():
    data, labels = make_data()
    miner, loss_fn = BatchHardMiner(CosineSimilarity()), TripletMarginLoss()
    losses = {}
    for dtype in (torch.float16, torch.float32):
        trunk = build_trunk().to(dtype)
        embeddings = trunk(data.to(dtype))
        pos, neg, finite = miner(embeddings.detach(), labels)
        loss = loss_fn(embeddings, pos, neg)
        loss.backward()
        losses[dtype] = loss.item()
        grads = all(bool(torch.isfinite(p.grad).all()) for p in trunk.parameters())
        print(str(dtype), f"loss {loss.item():.2f} fill finite {bool(finite)} grads finite {grads}")
    gap = abs(losses[torch.float16] / losses[torch.float32] - 1)
    print("within one percent", gap < 0.01)


if __name__ == "__main__":
    main()
