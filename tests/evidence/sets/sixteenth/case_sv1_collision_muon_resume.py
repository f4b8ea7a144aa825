"""
title: the momentum of a Muon optimizer comes back from a checkpoint in float32, the gradients are bfloat16
expect: collision
thread: https://github.com/deepspeedai/DeepSpeed/issues/7746
fix_at: 38, 43, 48, 70

Expectation, written first: the optimizer's own load function puts the saved buffers in as they are, and they are saved
in float32 (so that any precision can resume from them); lerp_ wants one dtype. Cause: the load that does not cast to
the dtype of the parameter (or the save that widened); the update line is where it shows.
"""
import io

import torch
from torch import nn


def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p.grad)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])  # COLLIDES
                update = p.grad.lerp(buf, group["momentum"])
                p.add_(newton_schulz(update), alpha=-group["lr"])

    def save(self):
        return [self.state[p]["momentum_buffer"].float() for g in self.param_groups for p in g["params"]]  # BORN

    def load(self, buffers):
        params = [p for g in self.param_groups for p in g["params"]]
        for p, buffer in zip(params, buffers, strict=True):
            self.state[p]["momentum_buffer"] = buffer.clone()  # BORN


class Engine:
    def __init__(self, module, dtype):
        self.module = module.to(dtype)
        self.optimizer = Muon([p for p in module.parameters() if p.ndim == 2])

    def train(self, x, y, steps):
        for _ in range(steps):
            loss = (self.module(x) - y).float().square().mean()
            loss.backward()
            self.optimizer.step()
            self.module.zero_grad()
        return loss.item()

    def save_checkpoint(self, stream):
        torch.save({"module": self.module.state_dict(), "optimizer": self.optimizer.save()}, stream)

    def load_checkpoint(self, stream):
        saved = torch.load(stream)
        self.module.load_state_dict(saved["module"])
        self.optimizer.load(saved["optimizer"])


def network():
    return nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, 16, bias=False))


def main():
    torch.manual_seed(0)
    x, y = (torch.randn(64, 16).to(torch.bfloat16) for _ in range(2))
    first = Engine(network(), torch.bfloat16)
    print(f"{first.train(x, y, 10):.2f}")
    stream = io.BytesIO()
    first.save_checkpoint(stream)
    stream.seek(0)
    second = Engine(network(), torch.bfloat16)
    second.load_checkpoint(stream)
    print(f"{second.train(x, y, 10):.2f}")


main()
