"""
title: bfloat16 weights are written back with random bits added below the last place
expect: clean
thread: https://github.com/pytorch/pytorch/issues/120376
measured: unexplained 0.00 (float32 0.00), weights moved 0.03 (float32 0.03)

Expectation, written first: the update is computed in float32; viewed as int32, its lower half gets a random number and is
cut off, which rounds up or down by chance. Small updates arrive in the mean and the loss is that of float32 weights.
"""
import torch
from torch import nn


def copy_stochastic_(target, source, gen):
    result = torch.randint(0, 1 << 16, source.shape, dtype=torch.int32, generator=gen)
    result.add_(source.view(dtype=torch.int32))
    result.bitwise_and_(-65536)
    target.copy_(result.view(dtype=torch.float32))


class AdamBF16(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, seed=0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
        self.gen = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s["step"], s["m"], s["v"] = 0, torch.zeros_like(p, dtype=torch.float32), torch.zeros_like(p, dtype=torch.float32)
                s["step"] += 1
                g = p.grad.float()
                s["m"].lerp_(g, 1 - b1)
                s["v"].lerp_(g * g, 1 - b2)
                m, v = s["m"] / (1 - b1 ** s["step"]), s["v"] / (1 - b2 ** s["step"])
                new = p.float() - group["lr"] * m / (v.sqrt() + group["eps"])
                if p.dtype == torch.bfloat16:
                    copy_stochastic_(p, new, self.gen)
                else:
                    p.copy_(new)


def field(x):
    return torch.stack((torch.sin(2 * x[:, 0]) * x[:, 1], torch.cos(x[:, 0] + x[:, 1])), -1)


def train(dtype, steps=400):
    torch.manual_seed(100)
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(dtype)
    opt = AdamBF16(net.parameters(), lr=1e-3)
    first = [p.detach().float().clone() for p in net.parameters()]
    for _ in range(steps):
        x = torch.rand(256, 2) * 2 - 1
        loss = (net(x.to(dtype)).float() - field(x)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    x = torch.rand(2000, 2) * 2 - 1
    with torch.no_grad():
        error = (net(x.to(dtype)).float() - field(x)).square().mean() / field(x).var()
    moved = torch.cat([(p.detach().float() - q).abs().flatten() for p, q in zip(net.parameters(), first)]).mean()
    return error.item(), moved.item()


def main():
    (full, far), (narrow, moved) = train(torch.float32), train(torch.bfloat16)
    print(f"unexplained {narrow:.2f} (float32 {full:.2f}), weights moved {moved:.2f} (float32 {far:.2f})")


main()
