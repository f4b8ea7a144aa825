"""
title: bf16 parameters trained with a Kahan buffer follow the fp32 run
expect: clean
thread: https://github.com/axolotl-ai-cloud/axolotl/pull/1727
measured: mean weight 1.52 ; with fp32 parameters: mean weight 1.52
suspect: 28 compensated (what the bf16 addition drops is kept in the compensation buffer and comes back with a later step)

Expectation, written first: parameters, momentum and compensation are bf16 and a step is below half a bf16 unit of the weight, which would
be lost; the Kahan buffer collects the lost part until it is large enough, so the printed mean weight is that of an fp32 run.
"""
import torch


class KahanSGD:
    def __init__(self, params, lr, kahan_sum=True):
        self.params = list(params)
        self.lr = lr
        self.kahan_sum = kahan_sum
        self.comp = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        for p, comp in zip(self.params, self.comp):
            update = -self.lr * p.grad
            if self.kahan_sum and p.dtype in (torch.float16, torch.bfloat16):
                comp.add_(update)
                before = p.detach().clone()
                p.add_(comp)
                comp.add_(before.sub_(p))
            else:
                p.add_(update)
            p.grad = None


class Gain(torch.nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((width,), 1.0, dtype=dtype))

    def forward(self, x):
        return x * self.weight


def train(dtype, steps, lr):
    torch.manual_seed(0)
    model = Gain(256, dtype)
    optimizer = KahanSGD(model.parameters(), lr)
    for _ in range(steps):
        x = torch.ones(8, 256, dtype=dtype)
        target = torch.full_like(x, 1.75)
        loss = (0.5 * (model(x) - target).float() ** 2).mean(0).sum()
        loss.backward()
        optimizer.step()
    return model


def main():
    model = train(torch.bfloat16, steps=600, lr=2e-3)
    print(f"mean weight {model.weight.float().mean():.2f}")


if __name__ == "__main__":
    main()
