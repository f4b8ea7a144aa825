"""
title: a supervised contrastive loss with a low temperature
expect: silent:overflow|downcast
thread: https://github.com/HobbitLong/SupContrast/issues/104
measured: loss nan
widened: loss 4.207
fix_at: 48

Expectation, written first: the similarities are divided by 0.07 and exponentiated in
float16, where exp(14) is too large; the loss is inf or nan. BORN is the cast of the logits;
float32 gives a finite loss. The half storage of the unit vectors is harmless.
"""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=12, out=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, out))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=1)


class Bank:
    """Keeps the last views of every class."""

    def __init__(self):
        self.vectors, self.labels = [], []

    def push(self, z, y):
        self.vectors.append(z.detach().half())
        self.labels.append(y)

    def all(self):
        return torch.cat(self.vectors).float(), torch.cat(self.labels)


class SupCon(nn.Module):
    def __init__(self, temperature=0.07):
        super().__init__()
        self.temperature = temperature

    def forward(self, z, y, keys, key_labels):
        logits = (z @ keys.t() / self.temperature).to(torch.float16)  # BORN
        same = (y[:, None] == key_labels[None]).to(logits.dtype)
        weight = torch.exp(logits)
        log_prob = logits - torch.log(weight.sum(1, keepdim=True))
        return -((same * log_prob).sum(1) / same.sum(1)).float().mean()


def batches(gen, count):
    centres = 2 * torch.randn(4, 12, generator=gen)
    for _ in range(count):
        y = torch.randint(0, 4, (16,), generator=gen)
        yield centres[y] + torch.randn(16, 12, generator=gen), y


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    encoder, bank, loss_fn = Encoder(), Bank(), SupCon()
    opt = torch.optim.SGD(encoder.parameters(), 0.05)
    for x, y in batches(gen, 12):
        z = encoder(x)
        bank.push(z, y)
        loss = loss_fn(z, y, *bank.all())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss %.3f" % loss.item())


if __name__ == "__main__":
    main()
