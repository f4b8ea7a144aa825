"""
title: the mask matcher sums the pixel costs of a whole picture under a float16 autocast
expect: silent:overflow
thread: https://github.com/huggingface/transformers/issues/25938
measured: targets given to the query that fits 0 of 12
widened: targets given to the query that fits 12 of 12

Expectation, written first: with badly initialised masks the cross entropy of 160 thousand pixels sums to more than
65504, the cost is inf for most pairs and after the clamp all look alike; the assignment is arbitrary. Class scores in
half make no difference.
"""
import itertools

import torch
from torch import nn


def pair_wise_sigmoid_cross_entropy_loss(inputs, labels):
    """(queries, targets) cost: mean over the pixels of the cross entropy"""
    pixels = inputs.shape[1]
    criterion = nn.BCEWithLogitsLoss(reduction="none")
    positive = criterion(inputs, torch.ones_like(inputs))
    negative = criterion(inputs, torch.zeros_like(inputs))
    loss = positive @ labels.T + negative @ (1 - labels).T
    return loss / pixels


class HungarianMatcher(nn.Module):
    def __init__(self, cost_class=1.0, cost_mask=5.0):
        super().__init__()
        self.cost_class, self.cost_mask = cost_class, cost_mask

    @torch.no_grad()
    def forward(self, masks_logits, class_logits, mask_labels, class_labels):
        found = []
        for masks, classes, targets, labels in zip(masks_logits, class_logits, mask_labels, class_labels):
            cost_class = -classes.half().softmax(-1)[:, labels]
            cost_mask = pair_wise_sigmoid_cross_entropy_loss(masks, targets.to(masks.dtype))
            cost = self.cost_mask * cost_mask + self.cost_class * cost_class
            cost = torch.nan_to_num(cost.float().clamp(-1e10, 1e10), 1e10)
            found.append(self.assign(cost))
        return found

    @staticmethod
    def assign(cost):
        q, t = cost.shape
        return min(itertools.permutations(range(q), t), key=lambda p: sum(cost[i, j].item() for j, i in enumerate(p)))


class MaskHead(nn.Module):
    """query embeddings against per-pixel features"""

    def __init__(self, queries=6, dim=8):
        super().__init__()
        self.queries = nn.Parameter(3 * torch.linalg.qr(torch.randn(dim, queries)).Q.T)

    def forward(self, features):
        return torch.einsum("qc,bcp->bqp", self.queries, features)


def scenes(n, targets, size, dim, queries, gen):
    """stripes; the features of stripe k point along the query that should take it"""
    labels = torch.zeros(n, targets, size * size)
    features = 0.3 * torch.randn(n, dim, size * size, generator=gen)
    right = []
    for b in range(n):
        owner = torch.randperm(len(queries), generator=gen)[:targets]
        for k, o in enumerate(owner):
            strip = slice(k * size * size // targets, (k + 1) * size * size // targets)
            labels[b, k, strip] = 1
            features[b, :, strip] += 0.4 * queries[o][:, None]
        right.append(tuple(owner.tolist()))
    return features, labels, right


torch.manual_seed(1)
gen = torch.Generator().manual_seed(1)
head, matcher = MaskHead(), HungarianMatcher()
features, labels, right = scenes(4, 3, 400, 8, head.queries.detach(), gen)
class_logits = 0.1 * torch.randn(4, 6, 5, generator=gen)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):  # BORN
    mask_logits = head(features)
    matched = matcher(mask_logits, class_logits, labels, [torch.tensor([0, 1, 2])] * 4)
good = sum(a == b for m, r in zip(matched, right) for a, b in zip(m, r))
print(f"targets given to the query that fits {good} of {sum(map(len, right))}")
