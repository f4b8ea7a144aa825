"""
title: With many micro-batches the gradients summed in a bf16 buffer come out too small
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/deepspeedai/DeepSpeed/issues/1800
measured: step 1 grad_norm 4.36 loss 8.3 | step 2 grad_norm 4.27 loss 7.0
widened: step 1 grad_norm 6.96 loss 8.3 | step 2 grad_norm 6.57 loss 6.7
innocent: step 1 grad_norm 4.36 loss 8.3 | step 2 grad_norm 4.27 loss 7.0
suspect: 20 once

Expectation, written first: The engine sums the gradients of the micro-batches in a buffer of the model's bf16; once the sum is some hundred times a
single gradient, each further addition is below half a step and lost, so the accumulated gradient is a fraction of what it ought to be. The
bf16 cast for the all-reduce at the boundary looks alike but rounds once.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Bf16Engine:
    communication_dtype = torch.bfloat16

    def __init__(self, model, lr, gradient_accumulation_steps, grad_accum_dtype):
        self.module = model.to(torch.bfloat16)
        self.lr = lr
        self.gas = gradient_accumulation_steps
        self.lp_params = [p for p in self.module.parameters() if p.requires_grad]
        self.hp_params = [p.detach().float().clone() for p in self.lp_params]
        self.grad_accum = [torch.zeros_like(p, dtype=grad_accum_dtype) for p in self.lp_params]  # BORN
        self.micro_steps = 0
        self.last_grad_norm = 0.0

    def __call__(self, x):
        return self.module(x)

    def backward(self, loss):
        loss.backward()
        for buffer, p in zip(self.grad_accum, self.lp_params):
            buffer.add_(p.grad)  # BORN
            p.grad = None
        self.micro_steps += 1

    def allreduce_gradients(self):
        return [g.to(self.communication_dtype).div(self.gas).float() for g in self.grad_accum]

    @torch.no_grad()
    def step(self):
        if self.micro_steps % self.gas:
            return
        grads = self.allreduce_gradients()
        self.last_grad_norm = torch.stack([g.norm() for g in grads]).norm().item()
        for hp, lp, g, buffer in zip(self.hp_params, self.lp_params, grads, self.grad_accum):
            hp.sub_(self.lr * g)
            lp.copy_(hp)
            buffer.zero_()


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 1))


def main():
    engine = Bf16Engine(
        build_model(), lr=0.02, gradient_accumulation_steps=800,
        grad_accum_dtype=torch.bfloat16,  # BORN
    )
    g = torch.Generator().manual_seed(1)
    for micro in range(2 * 800):
        x = torch.randn(4, 16, generator=g)
        y = 3.0 + 0.5 * x[:, :1]
        loss = F.mse_loss(engine(x.bfloat16()).float(), y)
        engine.backward(loss)
        engine.step()
        if engine.micro_steps % 800 == 0:
            print(f"step {engine.micro_steps // 800} grad_norm {engine.last_grad_norm:.2f} loss {loss.item():.1f}")


if __name__ == "__main__":
    main()
