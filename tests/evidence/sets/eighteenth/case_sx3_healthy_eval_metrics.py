"""
title: trainer evaluates in its bfloat16 precision context and updates the metrics in full precision
expect: clean
thread: https://github.com/mosaicml/composer/pull/1361
measured: mse matches: True, r2 above 0.9: True, state torch.float32
suspect: 73 harmless

Expectation, written first: the evaluation forward runs under bfloat16 autocast, afterwards autocast is left and the
outputs are widened to float32 before the metrics see them. The metric states accumulate in float32 over the batches and
agree with a float64 computation on the same outputs; what the narrow forward itself costs is intended.
"""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, MeanSquaredError, MetricCollection, R2Score


class Precision:
    FP32 = "fp32"
    BF16 = "amp_bf16"


@contextlib.contextmanager
def get_precision_context(precision):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == Precision.BF16):
        yield


class ComposerRegressor(nn.Module):
    def __init__(self, dim=12, hidden=32):
        super().__init__()
        self.module = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, batch):
        return self.module(batch[0]).squeeze(-1)

    def validate(self, batch):
        return self.forward(batch), batch[1]


class Trainer:
    def __init__(self, model, train_dataloader, eval_dataloader, precision, max_epochs=5):
        self.model, self.precision, self.max_epochs = model, precision, max_epochs
        self.train_dataloader, self.eval_dataloader = train_dataloader, eval_dataloader
        self.eval_metrics = MetricCollection({"mse": MeanSquaredError(), "r2": R2Score()})
        self.train_loss = MeanMetric()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def fit(self):
        for _ in range(self.max_epochs):
            self.model.train()
            for batch in self.train_dataloader:
                with get_precision_context(self.precision):
                    outputs = self.model(batch)
                loss = F.mse_loss(outputs.float(), batch[1])
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.train_loss.update(loss.detach())
        return self.train_loss.compute().item()

    @torch.no_grad()
    def eval(self):
        self.model.eval()
        kept = []
        for batch in self.eval_dataloader:
            with get_precision_context(self.precision):
                outputs, targets = self.model.validate(batch)
            with get_precision_context(Precision.FP32):
                outputs = outputs.float()
                self.eval_metrics.update(outputs, targets)
            kept.append((outputs.double() - targets.double()) ** 2)
        return {k: v.item() for k, v in self.eval_metrics.compute().items()}, torch.cat(kept).mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(640, 12)
    y = (x @ torch.randn(12)) * 0.5 + 0.1 * torch.randn(640)
    train, val = (DataLoader(TensorDataset(x[s], y[s]), batch_size=32) for s in (slice(0, 512), slice(512, None)))
    trainer = Trainer(ComposerRegressor(), train, val, Precision.BF16)
    trainer.fit()
    metrics, exact = trainer.eval()
    state = trainer.eval_metrics["mse"].sum_squared_error.dtype
    print(f"mse matches: {abs(metrics['mse'] - exact) < 1e-6}, r2 above 0.9: {metrics['r2'] > 0.9}, state {state}")
