"""
title: exp_avg kept in float32 meets bfloat16 gradients in lerp
expect: collision
thread: https://github.com/HomebrewML/HeavyBall/issues/26
fix_at: (none beside the marked)

Expectation, written first: The weights are bfloat16, hence so are the gradients. The moments are made in float32
and _compilable_exp_avg_ lerps them with the gradient as it is; lerp does not promote and raises for a BFloat16 end.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def copy_stochastic_(target, source):
    if target.dtype == torch.bfloat16 and source.dtype == torch.float32:
        noise = torch.randint_like(source, low=0, high=1 << 16, dtype=torch.int32)
        bits = source.view(torch.int32) + noise
        bits.bitwise_and_(-65536)
        target.copy_(bits.view(torch.float32))
    else:
        target.copy_(source)


def _compilable_exp_avg_(state, grad, beta):
    for s, g in zip(state, grad):
        lerped = s.lerp(g, 1 - beta)  # BORN COLLIDES
        copy_stochastic_(s, lerped)
        copy_stochastic_(g, lerped)


def _compilable_update_(params, update, denom, lr, eps):
    for p, u, d in zip(params, update, denom):
        p32 = p.float() - lr * u.float() / (d.sqrt() + eps)
        copy_stochastic_(p, p32)


class ForeachAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8, warmup_steps=0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, warmup_steps=warmup_steps))
        self.step_count = 0

    def state_of(self, p, name):
        state = self.state[p]
        if name not in state:
            state[name] = torch.zeros_like(p, dtype=torch.float32)  # BORN
        return state[name]

    @torch.no_grad()
    def step(self):
        self.step_count += 1
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]  # BORN
            exp_avg = [self.state_of(p, "exp_avg") for p in params]
            exp_avg_sq = [self.state_of(p, "exp_avg_sq") for p in params]
            for v, g in zip(exp_avg_sq, grads):
                v.mul_(group["betas"][1]).add_(g.float() ** 2, alpha=1 - group["betas"][1])
            _compilable_exp_avg_(exp_avg, grads, group["betas"][0])
            lr = group["lr"] * min(1.0, self.step_count / max(group["warmup_steps"], 1))
            _compilable_update_(params, grads, exp_avg_sq, lr, group["eps"])
            for p in params:
                p.grad = None


def get_batch(step, n=32):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(n, 8, generator=g)
    return x, (x[:, 0] > x[:, 1]).long()


def main():
    torch.manual_seed(26)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(torch.bfloat16)
    optimizer = ForeachAdamW(model.parameters(), warmup_steps=2)
    for step in range(5):
        data, target = get_batch(step)
        loss = F.cross_entropy(model(data.bfloat16()).float(), target)
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
