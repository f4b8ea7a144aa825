"""
title: DDP over one gloo rank, autocast bfloat16, accumulation with no_sync, gradients as views of the buckets
expect: clean
"""
import contextlib

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
body = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1, enable_nested_tensor=False)
model = nn.parallel.DistributedDataParallel(nn.Sequential(body, nn.Linear(16, 4)), gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(3):
    for micro in range(2):
        with model.no_sync() if micro == 0 else contextlib.nullcontext():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.randn(4, 6, 16)).float().logsumexp(-1).mean()
            (loss / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
print(loss.isfinite().item())
