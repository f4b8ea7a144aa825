"""
title: data-parallel detector head: gradients are compressed to fp16 for the exchange and decompressed after it
expect: clean
thread: https://github.com/facebookresearch/d2go/pull/70
measured: first 1.971 last five 1.742
suspect: 42 deliberate: gradients of order 0.1 lie well inside half's range, parameters and optimizer stay float32

Expectation, written first: each replica's gradient bucket is float32, the hook casts it to float16, divides it by
the world size, the buffers are added and the mean is copied back into the float32 bucket. The gradients are far
from half's limits, the optimizer works on float32 parameters. Losses agree with the uncompressed run to three
digits.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

COMM_DTYPE = torch.float16


class GradBucket:
    def __init__(self, params):
        self.params = list(params)
        self.buffer = torch.cat([p.grad.flatten() for p in self.params])

    def scatter(self):
        offset = 0
        for p in self.params:
            p.grad.copy_(self.buffer[offset : offset + p.numel()].view_as(p))
            offset += p.numel()


def allreduce(tensors):
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total.add_(tensor)
    return total


def fp16_compress_hook(world_size, buckets):
    compressed = [b.buffer.to(COMM_DTYPE).div_(world_size) for b in buckets]
    reduced = allreduce(compressed)
    for bucket in buckets:
        bucket.buffer.copy_(reduced)
        bucket.scatter()


class BoxHead(nn.Module):
    def __init__(self, in_dim=20, num_classes=4):
        super().__init__()
        self.fc = nn.Linear(in_dim, 32)
        self.cls_score = nn.Linear(32, num_classes + 1)
        self.bbox_pred = nn.Linear(32, 4)

    def losses(self, feats, labels, deltas):
        h = F.relu(self.fc(feats))
        fg = labels > 0
        loss_cls = F.cross_entropy(self.cls_score(h), labels)
        loss_box = F.smooth_l1_loss(self.bbox_pred(h)[fg], deltas[fg], beta=0.5)
        return loss_cls + loss_box


def train(world_size=4, steps=15, lr=0.05):
    torch.manual_seed(0)
    model = BoxHead()
    replicas = [copy.deepcopy(model) for _ in range(world_size)]
    optimizers = [torch.optim.SGD(r.parameters(), lr=lr, momentum=0.9) for r in replicas]
    proj = torch.randn(20, 4)
    history = []
    for _ in range(steps):
        losses = []
        for replica, optimizer in zip(replicas, optimizers):
            feats = torch.randn(32, 20)
            labels = (feats @ proj).argmax(1) + 1
            labels[torch.rand(32) < 0.3] = 0
            loss = replica.losses(feats, labels, torch.tanh(feats[:, :4]))
            loss.backward()
            losses.append(loss.item())
        fp16_compress_hook(world_size, [GradBucket(r.parameters()) for r in replicas])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        history.append(sum(losses) / world_size)
    return history


if __name__ == "__main__":
    history = train()
    print("first", f"{history[0]:.3f}", "last five", f"{sum(history[-5:]) / 5:.3f}")
