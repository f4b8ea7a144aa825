"""
title: the average of the weights is kept in float32 beside an autocast run and exported in half precision
expect: clean
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417
measured: accuracy 0.908
float64: accuracy 0.907 (no autocast, average and export in float64)

Expectation, written first: parameters, optimizer state and average are float32, bfloat16 lives only inside of the
autocast region; the export to float16 comes last and rounds weights of ordinary size. Accuracy does not move.
"""
import copy
import io

import torch
import torch.nn.functional as F
from torch import nn

AMP, REAL, EXPORT = True, torch.float32, torch.float16


class Average:
    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].lerp_(value.to(self.shadow[name].dtype), 1 - self.decay)

    def export(self):
        stream = io.BytesIO()
        torch.save({k: v.to(EXPORT) for k, v in self.shadow.items()}, stream)
        return stream.getvalue()


def restore(model, blob):
    state = torch.load(io.BytesIO(blob))
    fresh = copy.deepcopy(model)
    fresh.load_state_dict({k: v.to(REAL) for k, v in state.items()})
    return fresh.eval()


class Shapes:
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 4, (count,), generator=gen)
        base = torch.zeros(4, 1, 8, 8, dtype=torch.float64)
        base[0, :, 2], base[1, :, :, 5], base[2, :, 3:5, 3:5], base[3, :, 0] = 2.0, 2.0, 2.0, 2.0
        noise = torch.randn(count, 1, 8, 8, generator=gen, dtype=torch.float64)
        self.x = (base[self.y] + 1.8 * noise).to(REAL)

    def epochs(self, n, size):
        for _ in range(n):
            yield from zip(self.x.split(size), self.y.split(size))


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 4))


def fit(model, data):
    average = Average(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in data.epochs(6, 32):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AMP):
            logits = model(x)
        loss = F.cross_entropy(logits.float() if AMP else logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
    return average


if __name__ == "__main__":
    model = network().to(REAL)
    exported = fit(model, Shapes(512, seed=1)).export()
    held_out = Shapes(1024, seed=2)
    with torch.no_grad():
        right = restore(model, exported)(held_out.x).argmax(1) == held_out.y
    print(f"accuracy {right.float().mean().item():.3f}")
