"""
title: a float16 autocast run with a loss scale whose weights and optimizer stay in float32
expect: clean
thread: https://github.com/yk7333/d3po/issues/6
measured: last epoch's loss 0.190, accuracy 0.940, scale kept True
float64: last epoch's loss 0.190, accuracy 0.940, scale kept True (no autocast, no scale, everything in float64)

Expectation, written first: only activations are float16; they are of order one, the scale of 1024 lifts the small
gradients and is far from overflowing, no step is skipped. The loss follows the wide run to the third digit.
"""
import torch
import torch.nn.functional as F
from torch import nn

AMP, REAL = True, torch.float32


class ConvMixer(nn.Module):
    def __init__(self, channels=16, depth=2):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 2, stride=2)
        self.depthwise = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, groups=channels) for _ in range(depth))
        self.pointwise = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(depth))
        self.head = nn.Linear(channels, 3)

    def forward(self, x):
        x = F.gelu(self.stem(x))
        for a, b in zip(self.depthwise, self.pointwise):
            x = x + F.gelu(a(x))
            x = F.gelu(b(x))
        return self.head(x.mean((2, 3)))


class Stripes:
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 3, (count,), generator=gen)
        at = torch.arange(12, dtype=torch.float64)
        waves = torch.stack([torch.sin(at * w) for w in (0.5, 1.1, 1.9)])
        noise = torch.randn(count, 12, 12, generator=gen, dtype=torch.float64)
        self.x = (waves[self.y][:, None, :] + 1.2 * noise)[:, None].to(REAL)

    def loader(self, size):
        return list(zip(self.x.split(size), self.y.split(size)))


class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10_000, enabled=AMP)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16, enabled=AMP):
            logits = self.model(x)
        return logits.to(REAL)

    def step(self, x, y):
        loss = F.cross_entropy(self.forward(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    torch.manual_seed(5)
    trainer = Trainer(ConvMixer().to(REAL))
    data = Stripes(384, seed=1).loader(32)
    for _ in range(6):
        losses = [trainer.step(x, y) for x, y in data]
    test = Stripes(600, seed=2)
    with torch.no_grad():
        right = trainer.forward(test.x).argmax(1) == test.y
    print(f"last epoch's loss {sum(losses) / len(losses):.3f}, accuracy {right.double().mean().item():.3f}, scale kept {trainer.scaler.get_scale() in (1024.0, 1.0)}")


main()
