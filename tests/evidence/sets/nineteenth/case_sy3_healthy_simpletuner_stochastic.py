"""
title: AdamW for bfloat16 weights that writes its float32 result back with stochastic rounding
expect: clean
thread: https://github.com/bghira/SimpleTuner/pull/337
measured: mean gamma float32 1.0550 bfloat16 stochastic 1.0538; loss float32 0.0416 bfloat16 stochastic 0.0425
suspect: 19 stochastic (the cut of the low bits comes after a random carry, so it is right on average)

Expectation, written first: the step is computed in float32 on a copy of the bfloat16 weight; copy_stochastic_ adds a random number to the low
sixteen bits and cuts them off, so that a weight goes up with the probability of the remainder. Updates far below bfloat16's resolution are
kept on average: the mean of many weights ends where the float32 optimizer brings it.
"""
import torch


def copy_stochastic_(target, source):
    result = torch.randint_like(source, dtype=torch.int32, low=0, high=(1 << 16))
    result.add_(source.view(dtype=torch.int32))
    result.bitwise_and_(-65536)
    target.copy_(result.view(dtype=torch.float32))
    del result


class AdamWBF16(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, zero_grad=False):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                assert p.dtype == torch.bfloat16, "only bfloat16 weights are supported"
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                state["step"] += 1
                grad = p.grad.float()
                weight = p.float()
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                exp_avg.lerp_(grad, 1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                bias1, bias2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                denom = (exp_avg_sq / bias2).sqrt_().add_(group["eps"])
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.addcdiv_(exp_avg / bias1, denom, value=-group["lr"])
                copy_stochastic_(p, weight)
                if zero_grad:
                    p.grad = None


class ScaledProjection(torch.nn.Module):
    def __init__(self, dim, dtype):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(dim, dtype=dtype))

    def forward(self, x):
        return (x * self.gamma).float()


def finetune(optimizer_cls, dtype, steps=300):
    torch.manual_seed(0)
    model = ScaledProjection(2048, dtype)
    optimizer = optimizer_cls(model.parameters(), lr=2e-4, weight_decay=0.0)
    for _ in range(steps):
        x = (0.5 + torch.rand(4, 2048)).to(dtype)
        loss = (model(x) - 1.25 * x.float()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.gamma.detach().float().mean().item(), loss.item()


def main():
    reference, loss_ref = finetune(torch.optim.AdamW, torch.float32)
    gamma, loss = finetune(AdamWBF16, torch.bfloat16)
    print(f"mean gamma float32 {reference:.4f} bfloat16 stochastic {gamma:.4f}")
    print(f"loss float32 {loss_ref:.4f} bfloat16 stochastic {loss:.4f}")


if __name__ == "__main__":
    main()
