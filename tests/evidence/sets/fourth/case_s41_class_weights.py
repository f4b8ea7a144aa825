"""
title: class weights sit in a plain attribute, Lightning's bf16-true turns the rest of the module to bfloat16
expect: collision
needs: lightning
fix_at: 32

After https://github.com/Lightning-AI/pytorch-lightning/issues/2468 and https://github.com/NVIDIA/apex/issues/837.
Right: cast the weights to the logits' dtype (or compute the loss in float32).
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(17, verbose=False)


def inverse_frequency(labels, classes):
    counts = torch.bincount(labels, minlength=classes)
    return len(labels) / (classes * counts.clamp(min=1).to(torch.float32))  # BORN


class Classifier(L.LightningModule):
    def __init__(self, weights, inputs=10, classes=4):
        super().__init__()
        self.weights = weights
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, weight=self.weights)  # COLLIDES
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data(rows=64):
    y = torch.multinomial(torch.tensor([0.7, 0.2, 0.05, 0.05]), rows, replacement=True)
    x = F.one_hot(y, 10).float() + 0.3 * torch.randn(rows, 10)
    return x, y


x, y = data()
model = Classifier(inverse_frequency(y, 4))
trainer = L.Trainer(max_steps=4, precision="bf16-true", accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=16))
print("accuracy", (model.to(torch.float32)(x).argmax(-1) == y).float().mean().item())
