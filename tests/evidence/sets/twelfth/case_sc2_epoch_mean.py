"""
title: the epoch mean of a logged value is summed up in the dtype of the value
expect: silent:lost-update|precision-loss
thread: https://github.com/Lightning-AI/pytorch-lightning/issues/18620
measured: val_acc 0.085
widened: val_acc 0.987

Expectation, written first: validation_step logs a bf16 accuracy; once the sum of value times batch size is 256 times
the addend it stops growing while the count goes on, and the epoch's mean falls far below the true accuracy.
The bf16 logits themselves decide the classes as before.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ResultMetric:
    """running mean over the epoch"""

    def __init__(self):
        self.value, self.weight = None, 0

    def update(self, value, batch_size):
        if self.value is None:
            self.value = torch.zeros((), dtype=value.dtype)  # BORN
        self.value += value.detach() * batch_size
        self.weight += batch_size

    def compute(self):
        return (self.value.double() / self.weight).item()


class LightningModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.results = {}

    def log(self, name, value, batch_size):
        self.results.setdefault(name, ResultMetric()).update(value, batch_size)

    def epoch_results(self):
        out = {k: m.compute() for k, m in self.results.items()}
        self.results.clear()
        return out


class Classifier(LightningModule):
    def __init__(self, dim=16, classes=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, classes))

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch):
        x, y = batch
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.net(x)
        hits = (logits.argmax(-1) == y).to(logits.dtype)
        self.log("val_acc", hits.mean(), batch_size=len(y))


class Trainer:
    def __init__(self, max_steps=150):
        self.max_steps = max_steps

    def fit(self, module, loader):
        opt = torch.optim.Adam(module.parameters(), lr=5e-3)
        for _, batch in zip(range(self.max_steps), (b for _ in range(9) for b in loader)):
            opt.zero_grad()
            module.training_step(batch).backward()
            opt.step()

    @torch.no_grad()
    def validate(self, module, loader):
        module.eval()
        for batch in loader:
            module.validation_step(batch)
        return module.epoch_results()


def blobs(n, gen, centres):
    y = torch.randint(0, len(centres), (n,), generator=gen)
    return TensorDataset(centres[y] + torch.randn(n, centres.shape[1], generator=gen), y)


gen = torch.Generator().manual_seed(0)
torch.manual_seed(0)
centres = torch.randn(4, 16, generator=gen)
module, trainer = Classifier(), Trainer()
trainer.fit(module, DataLoader(blobs(2048, gen, centres), batch_size=64, shuffle=True))
print(f"val_acc {trainer.validate(module, DataLoader(blobs(12000, gen, centres), batch_size=4))['val_acc']:.3f}")
