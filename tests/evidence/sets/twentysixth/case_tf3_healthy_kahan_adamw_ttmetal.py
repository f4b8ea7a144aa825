"""
title: bfloat16 weights with a Kahan buffer take updates far below their ulp
expect: clean
thread: https://github.com/tenstorrent/tt-metal/pull/15518
measured: loss 0.6 -> 0.2 gamma moved by 0.08 dtype torch.bfloat16
suspect: 51 what is dropped here is kept in the compensation and added later

Expectation, written first: gamma is near 1 and its updates of 1e-4 are far below half an ulp of bfloat16. The compensation
buffer collects what the addition drops and gives it back, so weights and loss follow the float32 run to the
printed digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class AdamWConfig:
    lr = 3e-4
    beta1 = 0.9
    beta2 = 0.99
    epsilon = 1e-8
    weight_decay = 0.0
    use_kahan_summation = True


class CompositeAdamW:
    def __init__(self, parameters, config):
        self.parameters = list(parameters)
        self.config = config
        self.first_moment = [torch.zeros_like(p, dtype=torch.float32) for p in self.parameters]
        self.second_moment = [torch.zeros_like(p, dtype=torch.float32) for p in self.parameters]
        self.kahan_compensation = [torch.zeros_like(p) for p in self.parameters]
        self.steps = 0

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        c = self.config
        self.steps += 1
        bias1, bias2 = 1 - c.beta1 ** self.steps, 1 - c.beta2 ** self.steps
        for p, m, v, comp in zip(self.parameters, self.first_moment, self.second_moment, self.kahan_compensation):
            grad = p.grad.float()
            m.mul_(c.beta1).add_(grad, alpha=1 - c.beta1)
            v.mul_(c.beta2).addcmul_(grad, grad, value=1 - c.beta2)
            update = -c.lr * (m / bias1) / ((v / bias2).sqrt() + c.epsilon)
            comp.add_(update.to(comp.dtype))
            before = p.clone()
            p.add_(comp)
            comp.add_(before.sub_(p))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc(self.ln(x))


def get_batch(step, dim, n=64):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(n, dim, generator=g)
    return x, 0.5 * x.roll(1, dims=1)


def main(steps=400, dim=16):
    torch.manual_seed(15518)
    model = Block(dim).to(torch.bfloat16)
    optimizer = CompositeAdamW(model.parameters(), AdamWConfig())
    first = None
    for step in range(steps):
        x, y = get_batch(step, dim)
        pred = model(x.bfloat16()).float()
        loss = F.mse_loss(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    moved = (model.ln.weight.float() - 1).abs().mean().item()
    print(f"loss {first:.1f} -> {loss.item():.1f} gamma moved by {moved:.2f} dtype {model.ln.weight.dtype}")


if __name__ == "__main__":
    main()
