"""
title: weights held in bfloat16 are stepped with stochastic rounding
expect: clean
thread: https://github.com/pytorch/ao/pull/1124
measured: test error 0.16, of the mean 0.60

Expectation, written first: the step is computed in float32 and the way back to bfloat16 rounds up or down by chance,
so steps far below the spacing add up on average; the loss comes down as with float32 weights, up to a small noise.
"""
import torch
from torch import nn


def stochastic_round(x, gen):
    """float32 to bfloat16, up with the probability of the part that is cut off"""
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, generator=gen, dtype=torch.int32)
    return ((bits + noise) & -65536).view(torch.float32).bfloat16()


class BF16AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
        self.gen = torch.Generator().manual_seed(17)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p, dtype=torch.float32), v=torch.zeros_like(p, dtype=torch.float32))
                state["step"] += 1
                g = p.grad.float()
                state["m"].lerp_(g, 1 - b1)
                state["v"].lerp_(g * g, 1 - b2)
                m = state["m"] / (1 - b1 ** state["step"])
                v = state["v"] / (1 - b2 ** state["step"])
                fresh = p.float() - group["lr"] * m / (v.sqrt() + group["eps"])
                p.copy_(stochastic_round(fresh, self.gen))


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.a, self.b = nn.Linear(16, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).squeeze(-1)


class Data:
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        maker = torch.Generator().manual_seed(21)
        self.x = torch.randn(n, 16, generator=gen)
        w = torch.randn(16, generator=maker) / 4
        self.y = torch.sin(2 * self.x @ w) + 0.3 * torch.randn(n, generator=gen)


def main():
    torch.manual_seed(0)
    train, test = Data(1024, 1), Data(1024, 2)
    net = Net().to(torch.bfloat16)
    optimizer = BF16AdamW(net.parameters(), lr=5e-4)
    gen = torch.Generator().manual_seed(3)
    for _ in range(1500):
        at = torch.randint(0, 1024, (64,), generator=gen)
        loss = (net(train.x[at].to(net.a.weight.dtype)).float() - train.y[at]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = (net(test.x.to(net.a.weight.dtype)).float() - test.y).square().mean().item()
    print(f"test error {error:.2f}, of the mean {test.y.var().item():.2f}")


main()
