"""
title: Weights are rounded stochastically to bfloat16 by integer arithmetic on their bits
expect: clean
thread: https://github.com/pytorch/ao/pull/4576
measured: 100 mean weight 0.98 loss 0.04 / 200 mean weight 0.96 loss 0.03 / 300 mean weight 0.94 loss 0.02 / 400 mean weight 0.92 loss 0.02
suspect: 21 unbiased

Expectation, written first: The step is computed in float32 and written to bfloat16 weights by adding random
low bits and cutting them off. Each weight is off by up to one unit, but without bias, so that updates far
below that unit are kept in the mean. The mean weight and the loss agree with a float64 run to two decimals.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def _fp32_to_bf16_sr(x_f32):
    rand_16bit = torch.randint(0, 1 << 16, x_f32.shape, dtype=torch.int32)
    x_bits = x_f32.view(torch.int32)
    x_fraction = x_bits & 0xFFFF
    x_bits = x_bits & -65536
    x_bits = torch.where(rand_16bit < x_fraction, x_bits + 0x10000, x_bits)
    return x_bits.view(torch.float32).bfloat16()


def single_param_adam(p, grad, step, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, eps):
    p_f32, grad_f32 = p.float(), grad.float()
    p_f32 = p_f32 - lr * weight_decay * p_f32
    exp_avg.lerp_(grad_f32, 1 - beta1)
    exp_avg_sq.lerp_(grad_f32.square(), 1 - beta2)
    denom = (exp_avg_sq.sqrt() / (1 - beta2 ** step) ** 0.5) + eps
    p_f32 = p_f32 - lr / (1 - beta1 ** step) * (exp_avg / denom)
    p.copy_(_fp32_to_bf16_sr(p_f32) if p.dtype is torch.bfloat16 else p_f32)


class _AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                state["step"] += 1
                single_param_adam(p, p.grad, state["step"], state["exp_avg"], state["exp_avg_sq"],
                                  group["lr"], *group["betas"], group["weight_decay"], group["eps"])


class Gain(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * self.weight


def main():
    torch.manual_seed(29)
    dim = 4096
    model = Gain(dim).to(torch.bfloat16)
    optimizer = _AdamW(model.parameters(), lr=2e-4)
    x = torch.rand(4, dim) + 0.5
    target = 0.8 * x
    for step in range(1, 401):
        loss = F.mse_loss(model(x.bfloat16()).float(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, f"mean weight {model.weight.float().mean():.2f}", f"loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
