"""
title: Lightning bf16-true does not convert the custom graph batch
expect: collision
thread: https://github.com/Lightning-AI/pytorch-lightning/issues/2314
needs: lightning

Expectation, written first.  precision="bf16-true" casts the module to bfloat16
and converts the float tensors of the batch, but only inside the collections it
knows.  A hand-written GraphBatch class is passed through (it only offers .to
for the device), so its node features stay float32 as collate() made them, and
the first Linear refuses.  BORN is the line of collate() that stacks the
features; casting them to the module's dtype in training_step mends it too.
fix_at: 66
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class GraphBatch:
    def __init__(self, x, adj, y):
        self.x, self.adj, self.y = x, adj, y

    def to(self, device):
        self.x, self.adj, self.y = self.x.to(device), self.adj.to(device), self.y.to(device)
        return self


class RingGraphs(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = 6
        features = [[float(torch.rand((), generator=g)), float(k)] for k in range(n)]
        ring = [[1 if abs(a - b) in (0, 1, n - 1) else 0 for b in range(n)] for a in range(n)]
        return features, ring, i % 2


def collate(items):
    x = torch.tensor([f for f, _, _ in items], dtype=torch.float32)  # BORN
    adj = torch.tensor([r for _, r, _ in items])
    return GraphBatch(x, adj, torch.tensor([y for _, _, y in items]))


class GCN(L.LightningModule):
    def __init__(self, hidden=16):
        super().__init__()
        self.lift, self.mix, self.out = nn.Linear(2, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, x, adj):
        h = self.lift(x).relu()  # COLLIDES
        a = adj.to(h.dtype)
        h = self.mix(a @ h / a.sum(-1, keepdim=True)).relu()
        return self.out(h.mean(1))

    def training_step(self, batch, _):
        x = batch.x
        return nn.functional.cross_entropy(self(x, batch.adj).float(), batch.y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(RingGraphs(), batch_size=8, collate_fn=collate)
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", precision="bf16-true", logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(GCN(), loader)
    print("steps done:", trainer.global_step)
