"""
title: minGPT-ddp does not learn with AMP because the scaled gradients are clipped
expect: silent:plan|lost-update
thread: https://github.com/pytorch/examples/issues/1196
measured: epoch losses ['3.302', '3.302', '3.302']
widened: epoch losses ['1.548', '0.714', '0.687']; innocent: epoch losses ['3.302', '3.302', '3.302']
suspect: 35 exact (token ids below 32)

Expectation, written first: clip_grad_norm_ runs on gradients that still carry the loss scale of 65536, so every step is
clipped to norm 1 and then divided by 65536; the weights hardly move. Remedy: scaler.unscale_(optimizer) before clipping.
The token ids as uint8 are exact.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainerConfig:
    max_epochs: int = 3
    batch_size: int = 32
    grad_norm_clip: float = 1.0
    learning_rate: float = 0.5
    use_amp: bool = True


class CharDataset(Dataset):
    def __init__(self, text, block_size):
        chars = sorted(set(text))
        stoi = {c: i for i, c in enumerate(chars)}
        self.vocab_size, self.block_size = len(chars), block_size
        self.data = torch.tensor([stoi[c] for c in text]).to(torch.uint8)

    def __len__(self):
        return len(self.data) - self.block_size

    def __getitem__(self, i):
        chunk = self.data[i:i + self.block_size + 1].long()
        return chunk[:-1], chunk[1:]


class GPT(nn.Module):
    def __init__(self, vocab_size, dim=24):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, vocab_size))

    def forward(self, idx, targets):
        logits = self.mlp(self.tok_emb(idx))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    def __init__(self, config, model, dataset):
        self.config, self.model = config, model
        self.loader = DataLoader(dataset, batch_size=config.batch_size)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
        self.scaler = torch.amp.GradScaler("cpu", enabled=config.use_amp)

    def _run_batch(self, source, targets):
        with torch.amp.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.use_amp):
            loss = self.model(source, targets)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)  # BORN
        self.scaler.step(self.optimizer)  # BORN
        self.scaler.update()
        return loss.item()

    def train(self):
        epochs = []
        for _ in range(self.config.max_epochs):
            losses = [self._run_batch(x, y) for x, y in self.loader]
            epochs.append(sum(losses) / len(losses))
        return epochs


def main():
    torch.manual_seed(1196)
    dataset = CharDataset("the quick brown fox jumps over the lazy dog. " * 30, block_size=16)
    epochs = Trainer(TrainerConfig(), GPT(dataset.vocab_size), dataset).train()
    print("epoch losses", [f"{v:.3f}" for v in epochs])


main()
