"""
title: a contrastive loss gathers bfloat16 features into places of the default dtype
expect: collision
modes: diagnose,fix

Every rank must offer room for what the others send. The room was made with a shape only; the collective compares
dtypes before it sends anything.
"""
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@contextlib.contextmanager
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def gathered(feature):
    room = [torch.zeros(feature.shape) for _ in range(dist.get_world_size())]  # BORN
    dist.all_gather(room, feature.detach())  # COLLIDES
    room[dist.get_rank()] = feature
    return torch.cat(room)


def contrast(left, right, heat=0.1):
    scores = F.normalize(left, dim=-1) @ F.normalize(gathered(right), dim=-1).t() / heat
    return F.cross_entropy(scores.float(), torch.arange(len(left)))


torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 8)).to(torch.bfloat16)
with alone():
    x = torch.randn(4, 10, dtype=torch.bfloat16)
    loss = contrast(encoder(x), encoder(x + 0.1 * torch.randn_like(x)))
    loss.backward()
print("loss", round(loss.item(), 3))
