"""
title: a LightningModule trained with precision="bf16-mixed", the parameters staying in float32
expect: clean
thread: https://github.com/Lightning-AI/pytorch-lightning/issues/12591
measured: parameters and exp_avg float32, logits bfloat16, val accuracy 0.985 (0.985 in 32-true)

Expectation, written first: "bf16-mixed" is autocast: the linears run in bf16, the weights, their gradients and Adam's state are float32, and
the cross entropy is computed in float32. The model's memory is not halved, which is what surprised the reporter, but nothing is wrong.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class ClassificationTask(L.LightningModule):
    def __init__(self, n_features, n_classes, hidden=48, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = nn.Sequential(nn.Linear(n_features, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.head = nn.Linear(hidden, n_classes)
        self.seen_dtypes = set()

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.seen_dtypes.add(str(logits.dtype))
        return F.cross_entropy(logits, y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        correct = (self(x).argmax(dim=1) == y).sum()
        self.correct = self.correct + correct.item()
        self.total = self.total + len(y)

    def on_validation_epoch_start(self):
        self.correct, self.total = 0, 0

    def on_validation_epoch_end(self):
        self.accuracy = self.correct / max(self.total, 1)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def make_data(n, n_features, n_classes, generator):
    centers = torch.randn(n_classes, n_features, generator=generator) * 1.5
    y = torch.randint(0, n_classes, (n,), generator=generator)
    return TensorDataset(centers[y] + torch.randn(n, n_features, generator=generator), y)


def main(precision="bf16-mixed"):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    data = make_data(900, 12, 5, generator)
    train, val = torch.utils.data.random_split(data, [700, 200], generator=generator)
    model = ClassificationTask(12, 5)
    trainer = L.Trainer(max_epochs=4, precision=precision, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(model, DataLoader(train, batch_size=50, shuffle=True, generator=generator), DataLoader(val, batch_size=100))
    parameter_dtypes = {str(p.dtype) for p in model.parameters()}
    state_dtypes = {str(s["exp_avg"].dtype) for s in trainer.optimizers[0].state.values()}
    print("parameters", parameter_dtypes, "exp_avg", state_dtypes, "logits", model.seen_dtypes)
    print(f"val accuracy {model.accuracy:.3f}")


if __name__ == "__main__":
    main()
