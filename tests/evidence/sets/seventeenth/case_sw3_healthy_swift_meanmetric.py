"""
title: mean metric whose state mixes python and numpy scalars is reduced over gloo in a pinned float64
expect: clean
thread: https://github.com/modelscope/ms-swift/pull/9551
measured: {'loss': 0.256, 'token_acc': 0.918, 'seq_acc': 0.787} torch.float32
suspect: 42 pinned

Expectation, written first: the state is a Python float or a numpy.float64 depending on the path, and the all-reduce tensor is built in
float64 on every rank, so the collective sees one dtype and the count stays exact. The float64 never reaches the float32 model.
"""
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

def compute_acc(preds, labels, acc_strategy="token", ignore_index=-100):
    masks = labels != ignore_index
    if acc_strategy == "token":
        return (preds[masks] == labels[masks]).tolist()
    return [np.all(preds[i, m] == labels[i, m]) for i, m in enumerate(masks)]

class MeanMetric:
    def __init__(self, nan_value=0, device="cpu"):
        self.nan_value, self.device = nan_value, device
        self.reset()

    def reset(self):
        self.state, self.count = 0.0, 0

    def update(self, state):
        if isinstance(state, torch.Tensor):
            state = state.tolist()
        for value in state if isinstance(state, (list, tuple, np.ndarray)) else [state]:
            self.state += value
            self.count += 1

    def compute(self):
        tensor = torch.tensor([self.state, self.count], dtype=torch.float64, device=self.device)
        if dist.is_initialized():
            dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
        return {"value": (tensor[0] / tensor[1]).item() if tensor[1] else self.nan_value}

class TinyTagger(nn.Module):
    def __init__(self, vocab=32, dim=16, tags=4):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, tags)

    def forward(self, ids):
        return self.head(self.embed(ids))

class Trainer:
    def __init__(self, model):
        self.model, self.metrics = model, {k: MeanMetric() for k in ("loss", "token_acc", "seq_acc")}
        self.optimizer = torch.optim.Adam(model.parameters(), lr=5e-2)

    def training_step(self, ids, labels):
        logits = self.model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        preds = logits.argmax(-1).numpy()
        self.metrics["loss"].update(loss.detach().item())
        self.metrics["token_acc"].update(compute_acc(preds, labels.numpy()))
        self.metrics["seq_acc"].update(compute_acc(preds, labels.numpy(), acc_strategy="seq"))

if __name__ == "__main__":
    store = os.path.join(tempfile.mkdtemp(), "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    torch.manual_seed(0)
    trainer = Trainer(TinyTagger())
    for _ in range(40):
        ids = torch.randint(0, 32, (8, 6))
        trainer.training_step(ids, ids % 4)
    print({k: round(m.compute()["value"], 3) for k, m in trainer.metrics.items()}, trainer.model.head.weight.dtype)
    dist.destroy_process_group()
