"""
title: gradients of many microbatches are accumulated in bf16 and most of their sum is lost
expect: silent:lost-update|gradient-dtype|precision-loss
thread: https://github.com/mlnomadpy/flaxchat/issues/6
measured: step 1: gradient norm 0.740
widened: step 1: gradient norm 1.162 ; innocent: step 1: gradient norm 0.740
suspect: 26 coarse (the hidden layer is evaluated in bf16, which perturbs each microbatch gradient without bias)

Expectation, written first: the accumulation buffers are bf16; after a few hundred microbatches an addend is below half a step of the
running sum and vanishes, so the averaged gradient and the norm the clipper sees are much too small. The bf16 activations add noise to
single microbatches, which averages out.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyChat(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        self.compute_dtype = torch.bfloat16

    def forward(self, x):
        h = F.silu(self.up(x)).to(self.compute_dtype)
        return self.down(h.float())


class TrainState:
    def __init__(self, model, lr, accum_dtype):
        self.model = model
        self.lr = lr
        self.accum_dtype = accum_dtype
        self.step = 0

    def zero_accum(self):
        return [torch.zeros_like(p, dtype=self.accum_dtype) for p in self.model.parameters()]  # BORN

    def accumulate(self, accum):
        for buf, p in zip(accum, self.model.parameters()):
            buf += p.grad  # BORN
            p.grad = None

    @torch.no_grad()
    def apply(self, accum, microbatches, max_norm=10.0):
        grads = [buf.float() / microbatches for buf in accum]
        norm = torch.stack([g.norm() for g in grads]).norm()
        scale = min(1.0, max_norm / (norm.item() + 1e-6))
        for p, g in zip(self.model.parameters(), grads):
            p -= self.lr * scale * g
        self.step += 1
        return norm.item()


def train_step(state, microbatches, batch_size):
    accum = state.zero_accum()
    for _ in range(microbatches):
        x = torch.randn(batch_size, 16)
        loss = F.mse_loss(state.model(x), 0.5 * x + 2.0)
        loss.backward()
        state.accumulate(accum)
    return state.apply(accum, microbatches)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    state = TrainState(TinyChat(), lr=1e-3, accum_dtype=torch.bfloat16)  # BORN
    norm = train_step(state, microbatches=900, batch_size=8)
    print(f"step {state.step}: gradient norm {norm:.3f}")


if __name__ == "__main__":
    main()
