"""
title: bf16 weights updated with stochastic rounding: an int32 view and a mask, no fp32 master copy
expect: clean
thread: https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1165
measured: mean weight fp32 0.9909 stochastic bf16 0.9909
suspect: 18 unbiased

Expectation, written first: the float32 result of each step is dropped to bfloat16 through an integer view after random noise was added to
the lower 16 bits, so the rounding is right on average and small updates move the weights as far as in float32.
"""
import torch
from torch import nn

def copy_stochastic_(target, source, generator):
    result = torch.randint(0, 1 << 16, source.shape, dtype=torch.int32, generator=generator)
    result.add_(source.view(dtype=torch.int32))
    result.bitwise_and_(-65536)
    target.copy_(result.view(dtype=torch.float32))

class StochasticSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, momentum=0.9, seed=0):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p, dtype=torch.float32)
                buf = state["momentum_buffer"].mul_(group["momentum"]).add_(p.grad.float())
                copy_stochastic_(p, p.float().add_(buf, alpha=-group["lr"]), self.generator)

class DriftModel(nn.Module):
    def __init__(self, n=4096, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n, dtype=dtype))

    def forward(self):
        return (self.weight.float() * 0.01).sum()

class Experiment:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def run(self, steps=100):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model().backward()
            self.optimizer.step()
        return self.model.weight.detach().float().mean().item()

def main():
    reference = DriftModel()
    expected = Experiment(reference, torch.optim.SGD(reference.parameters(), lr=1e-3, momentum=0.9)).run()
    model = DriftModel(dtype=torch.bfloat16)
    got = Experiment(model, StochasticSGD(model.parameters(), lr=1e-3)).run()
    print(f"mean weight fp32 {expected:.4f} stochastic bf16 {got:.4f}")

if __name__ == "__main__":
    main()
