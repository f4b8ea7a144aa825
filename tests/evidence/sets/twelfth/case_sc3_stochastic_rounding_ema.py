"""
title: pure bfloat16 weights with stochastic rounding of the update, and an EMA kept in float32
expect: clean
thread: https://github.com/pytorch/pytorch/issues/120376
measured: EMA error 0.0216 (float32 0.0218), variance of the target 0.386

Expectation, written first: most steps are below half a rounding step of the weights, but they are added in float32 and
rounded up or down at random in proportion; on average nothing is lost. The EMA's small steps fall on float32.
"""
import copy
from argparse import Namespace

import torch
from torch import nn


def copy_stochastic_(target, source, generator):
    """target (bfloat16) <- source (float32), rounded up with the probability of the cut-off part"""
    bits = torch.randint(0, 1 << 16, source.shape, dtype=torch.int32, generator=generator)
    bits = bits + source.view(dtype=torch.int32)
    target.copy_(bits.bitwise_and_(-65536).view(dtype=torch.float32))


class AdamWStochastic(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.98), eps=1e-8, seed=0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                state["step"] += 1
                grad = p.grad.float()
                state["exp_avg"].lerp_(grad, 1 - b1)
                state["exp_avg_sq"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                m = state["exp_avg"] / (1 - b1 ** state["step"])
                v = state["exp_avg_sq"] / (1 - b2 ** state["step"])
                new = p.float() - group["lr"] * m / (v.sqrt() + group["eps"])
                if p.dtype == torch.bfloat16:
                    copy_stochastic_(p, new, self.generator)
                else:
                    p.copy_(new)


class EMAModule:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model).float().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p.float(), 1 - self.decay)


class Regressor(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.body(x.to(self.body[0].weight.dtype)).float()


class Surface(torch.utils.data.Dataset):
    def __init__(self, n, dim):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, dim, generator=g)
        self.y = (torch.sin(2 * self.x[:, :1]) + self.x[:, 1:2] * self.x[:, 2:3]) / 2

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train(config, dtype):
    torch.manual_seed(config.seed)
    model = Regressor(config.dim).to(dtype)
    ema = EMAModule(model, config.ema_decay)
    optimizer = AdamWStochastic(model.parameters(), lr=config.learning_rate)
    data = Surface(512, config.dim)
    loader = torch.utils.data.DataLoader(data, config.batch_size, shuffle=True, generator=torch.Generator().manual_seed(1))
    for _ in range(config.epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
    with torch.no_grad():
        return nn.functional.mse_loss(ema.shadow(data.x), data.y).item(), data.y.var().item()


config = Namespace(seed=0, dim=4, learning_rate=1e-3, batch_size=64, epochs=80, ema_decay=0.98)
low, variance = train(config, torch.bfloat16)
full, _ = train(config, torch.float32)
assert low < 0.1 * variance and low < full + 0.02, (low, full)
print(f"EMA error {low:.4f} (float32 {full:.4f}), variance of the target {variance:.3f}")
