"""
title: an LSTM anomaly detector in half precision behind a standardiser with float32 statistics
expect: collision
thread: https://github.com/pytorch/TensorRT/issues/2666
fix_at: 24

Expectation, written first: the network is half and the readings are half, but the
standardiser keeps its mean and scale as plain float32 tensors (not buffers, so .half() does
not reach them): the standardised input is promoted to float32 and the LSTM refuses.
BORN is the line where the statistics are made in float32; half there (or a buffer) mends it.
"""
import torch
from torch import nn


class Standardiser(nn.Module):
    def __init__(self, rows):
        super().__init__()
        stats = torch.stack([rows.mean(0), rows.std(0)])
        self.stats = stats.to(dtype=torch.float32)  # BORN

    def forward(self, x):
        mean, scale = self.stats
        return (x - mean) / scale


class Autoencoder(nn.Module):
    def __init__(self, channels, hidden, standardiser):
        super().__init__()
        self.standardiser = standardiser
        self.rnn = nn.LSTM(channels, hidden, batch_first=True)
        self.out = nn.Linear(hidden, channels)

    def forward(self, x):
        z = self.standardiser(x)
        h, _ = self.rnn(z)  # COLLIDES
        return z, self.out(h)


class Monitor:
    def __init__(self, model, threshold):
        self.model, self.threshold = model.half().eval(), threshold

    @torch.no_grad()
    def scan(self, windows):
        alarms = []
        for k, w in enumerate(windows):
            z, back = self.model(w[None].half())
            error = (z - back).float().square().mean().item()
            if error > self.threshold:
                alarms.append(k)
        return alarms


def machine_log(gen, length=400, channels=4):
    base = torch.sin(torch.arange(length)[:, None] * torch.tensor([0.1, 0.2, 0.05, 0.3]))
    noise = 0.1 * torch.randn(length, channels, generator=gen)
    log = 3 * base + noise + torch.tensor([20.0, 5.0, 1.0, 60.0])
    log[250:260, 2] += 9.0
    return log


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    log = machine_log(gen)
    monitor = Monitor(Autoencoder(4, 12, Standardiser(log[:200])), threshold=2.0)
    print("alarms in windows", monitor.scan(log.split(50)))


if __name__ == "__main__":
    main()
