"""
title: moreh_adam runs with other betas than those that were asked for and the loss grows
expect: silent:downcast|precision-loss|lost-update
thread: https://github.com/tenstorrent/tt-metal/issues/55935
measured: steps 80 first loss 0.78 mean of last ten 3.09 / second moment: share of zeros 1.00
widened: steps 80 first loss 0.78 mean of last ten 0.000825 / second moment: share of zeros 0.00; innocent: steps 80 first loss 0.78 mean of last ten 3.09 / second moment: share of zeros 1.00
suspect: 22 exact (step numbers up to 80)

Expectation, written first: the scalars lr, beta1, beta2, eps are delivered in the dtype of the parameters' tiles, bfloat16,
where 0.999 rounds to 1.0. So 1 - beta2 is 0, the second moment stays 0 and the update is divided by eps alone. Remedy:
float32 scalars. The step counter in float16 is exact.
"""
import torch
from torch import nn


class MorehAdam:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-8):
        self.params = list(params)
        self.betas = betas
        self.hyper = torch.tensor([lr, betas[0], betas[1], eps], dtype=torch.bfloat16)  # BORN hyper
        self.step_count = torch.zeros((), dtype=torch.float16)
        self.exp_avg = [torch.zeros_like(p) for p in self.params]
        self.exp_avg_sq = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.step_count += 1
        t = int(self.step_count)
        lr, beta1, beta2, eps = self.hyper
        bias1, bias2 = 1 - self.betas[0] ** t, 1 - self.betas[1] ** t
        for p, m, v in zip(self.params, self.exp_avg, self.exp_avg_sq):
            m.mul_(beta1).add_((1 - beta1) * p.grad)
            v.mul_(beta2).add_((1 - beta2) * p.grad ** 2)  # BORN
            denom = (v / bias2).sqrt() + eps
            p.sub_(lr * (m / bias1) / denom)


class Regressor(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, 1), nn.Tanh())

    def forward(self, x):
        return self.net(x).squeeze(-1)


def batches(generator, n, size, dim):
    weight = torch.randn(dim, generator=generator)
    for _ in range(n):
        x = torch.randn(size, dim, generator=generator)
        yield x, torch.tanh(x @ weight)


def train(model, optimizer, generator, steps=80):
    losses = []
    for x, y in batches(generator, steps, 64, 6):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(55935)
    model = Regressor(6, 24)
    optimizer = MorehAdam(model.parameters())
    losses = train(model, optimizer, torch.Generator().manual_seed(4))
    print(f"steps {int(optimizer.step_count)} first loss {losses[0]:.2f} mean of last ten {sum(losses[-10:]) / 10:.3g}")
    second = torch.cat([v.flatten() for v in optimizer.exp_avg_sq])
    print(f"second moment: share of zeros {(second == 0).float().mean():.2f}")


if __name__ == "__main__":
    main()
