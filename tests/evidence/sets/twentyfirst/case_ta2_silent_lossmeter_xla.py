"""
title: the epoch loss shrinks with the length of the log interval because it is summed up in bf16
expect: silent:lost-update|precision-loss
thread: https://github.com/pytorch/xla/pull/2425
measured: [epoch 1] steps=700 mean loss=1.463
widened: [epoch 1] steps=700 mean loss=2.329 ; innocent: [epoch 1] steps=700 mean loss=1.463
suspect: 53 coarse (each loss comes from bf16 logits and is off by some tenths of a per cent, with no bias)

Expectation, written first: the tracker keeps its running total in bf16; once the total is 256 times a single loss the additions are rounded
away while the denominator goes on counting, so the reported mean is far too low. The logits in bf16 only blur the single losses.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LossTracker:
    def __init__(self, dtype):
        self.total = torch.zeros((), dtype=dtype)  # BORN
        self.steps = 0

    def update(self, loss):
        self.total += loss.detach()  # BORN
        self.steps += 1

    def global_mean(self):
        return self.total.item() / self.steps


class PlainSGD:
    def __init__(self, params, lr):
        self.params = list(params)
        self.lr = lr

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p in self.params:
            p -= self.lr * p.grad


class MnistLike(nn.Module):
    def __init__(self, n_in=20, n_out=10):
        super().__init__()
        self.fc1 = nn.Linear(n_in, 24)
        self.fc2 = nn.Linear(24, n_out)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc2(x).to(torch.bfloat16)


def train_loop_fn(model, optimizer, loader, tracker):
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output.float(), target)
        loss.backward()
        optimizer.step()
        tracker.update(loss)


def batches(steps, batch_size):
    for _ in range(steps):
        yield torch.randn(batch_size, 20), torch.randint(0, 10, (batch_size,))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MnistLike()
    optimizer = PlainSGD(model.parameters(), lr=1e-3)
    tracker = LossTracker(torch.bfloat16)  # BORN
    train_loop_fn(model, optimizer, batches(700, 16), tracker)
    print(f"[epoch 1] steps={tracker.steps} mean loss={tracker.global_mean():.3f}")


if __name__ == "__main__":
    main()
