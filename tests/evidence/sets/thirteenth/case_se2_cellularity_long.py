"""
title: a validation loop casts regression targets to long and keeps the wrong epoch
expect: silent:integer-truncation|downcast
thread: https://github.com/srinidhiPY/SSL_CR_Histo/issues/5
measured: kept epoch 2 of 12, test error of its cellularity 0.202
widened: kept epoch 12 of 12, test error of its cellularity 0.083

Expectation, written first: cellularity lies between zero and one, the cast makes every target zero, and the model that
predicts the least has the best validation loss, so the first epoch is kept. The innocent suspect is the stain image,
held as uint8: its 256 levels are all there was.
"""
import copy

import torch
from torch import nn


class Patches:
    def __init__(self, n, gen):
        self.cellularity = torch.rand(n, generator=gen).square()
        dots = self.cellularity[:, None] * torch.linspace(0.4, 1.6, 36)
        picture = 120 + 90 * dots + 25 * torch.randn(n, 36, generator=gen)
        self.images = picture.clamp(0, 255).to(torch.uint8)

    def loader(self, batch):
        for i in range(0, len(self.images), batch):
            yield self.images[i : i + batch].float() / 255, self.cellularity[i : i + batch]


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 1))
        nn.init.zeros_(self.body[-1].weight)
        nn.init.zeros_(self.body[-1].bias)

    def forward(self, x):
        return self.body(x)[:, 0]


def train_epoch(model, loader, optimizer):
    for image, target in loader:
        loss = (model(image) - target.float()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader):
    losses = []
    for image, target in loader:
        target = target.long()  # BORN
        losses.append((model(image) - target).square().mean())
    return torch.stack(losses).mean().item()


@torch.no_grad()
def test(model, loader):
    pairs = [(model(image), target) for image, target in loader]
    prediction, truth = torch.cat([p for p, _ in pairs]), torch.cat([t for _, t in pairs])
    return (prediction - truth).abs().mean().item()


def main(epochs=12):
    torch.manual_seed(30)
    gen = torch.Generator().manual_seed(31)
    train, valid, held_out = Patches(1600, gen), Patches(400, gen), Patches(400, gen)
    model, best = Regressor(), (float("inf"), None, None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        train_epoch(model, train.loader(64), optimizer)
        score = validate(model, valid.loader(64))
        if score < best[0]:
            best = (score, epoch, copy.deepcopy(model.state_dict()))
    model.load_state_dict(best[2])
    print(f"kept epoch {best[1] + 1} of {epochs}, test error of its cellularity {test(model, held_out.loader(64)):.3f}")


main()
