"""
title: manifold mixup interpolates bfloat16 activations with float32 mixing weights
expect: collision
thread: https://github.com/nestordemeure/ManifoldMixupV2/pull/3
fix_at: 29

Expectation, written first: the mixing weights are drawn from a Beta distribution in float32;
the hook lerps the hidden activations, which are bfloat16 under autocast, and lerp refuses.
"""
import torch
from torch import nn


class ManifoldMixup:
    def __init__(self, model, alpha=0.4):
        self.layers = [m for m in model if isinstance(m, nn.Linear)][:-1]
        self.alpha = alpha
        self.handle = None

    def begin_batch(self, n):
        self.perm = torch.randperm(n)
        beta = torch.distributions.Beta(self.alpha, self.alpha)
        lam = beta.sample((n,))  # BORN
        self.lam = torch.maximum(lam, 1 - lam)
        layer = self.layers[torch.randint(len(self.layers), ()).item()]
        self.handle = layer.register_forward_hook(self.mix)

    def mix(self, module, inputs, output):
        weight = self.lam.view(-1, 1)
        return torch.lerp(output[self.perm], output, weight)  # COLLIDES

    def loss(self, logits, y):
        self.handle.remove()
        ce = nn.functional.cross_entropy
        first = ce(logits, y, reduction="none")
        second = ce(logits, y[self.perm], reduction="none")
        return torch.lerp(second, first, self.lam).mean()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    mixup = ManifoldMixup(model)
    x, y = torch.randn(96, 20), torch.randint(0, 3, (96,))
    for rows in torch.arange(96).split(32):
        mixup.begin_batch(len(rows))
        with torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
            logits = model(x[rows])
        loss = mixup.loss(logits.float(), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.3f}")


main()
