"""
title: gradient clipping in the sharded optimizer zeroes every gradient once the norm passes 256
expect: silent:overflow|zero-gradient
thread: https://github.com/facebookresearch/fairscale/pull/263
measured: loss 14.672 -> 14.672
widened: loss 14.672 -> 10.376
innocent: loss 14.672 -> 14.672
suspect: line 34 harmless (a factor rounded to three digits)

Expectation, written first: the norm of each half gradient is squared in half; above 256 the square is inf, the total norm
is inf, the clip factor max_norm / inf is 0 and the step does nothing. No parameter moves and the loss stays where it is.
The cast of the factor to half before scaling the gradients is harmless.
"""
import torch
import torch.nn as nn


class OSS:
    def __init__(self, params, lr, world_size=2):
        self.params = list(params)
        self.shards = [self.params[rank::world_size] for rank in range(world_size)]
        self.lr = lr

    @torch.no_grad()
    def clip_grad_norm(self, max_norm):
        shard_norms = []
        for shard in self.shards:
            local = [p.grad.norm(2) ** 2 for p in shard if p.grad is not None]  # BORN
            shard_norms.append(torch.stack(local).sum())
        total_norm = torch.stack(shard_norms).sum() ** 0.5
        clip_coef = max_norm / (total_norm + 1e-6)
        if clip_coef < 1:
            for p in self.params:
                p.grad.mul_(clip_coef.to(p.grad.dtype))
        return total_norm

    @torch.no_grad()
    def step(self):
        for p in self.params:
            p.sub_((self.lr * p.grad.float()).to(p.dtype))

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class FeedForward(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.fc1 = nn.Linear(dim, 32)
        self.fc2 = nn.Linear(32, dim)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = FeedForward().half()
    optimizer = OSS(model.parameters(), lr=0.05)
    x = torch.randn(64, 16).half()
    y = (x.float() @ torch.randn(16, 16)).half()
    losses = []
    for update in range(60):
        loss = (model(x) - y).float().pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        losses.append(loss.item() / y.numel())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


main()
