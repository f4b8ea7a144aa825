"""
title: after resuming, Adam's step counter stands still and the updates stay too small
expect: silent:precision-loss|lost-update|downcast
thread: https://github.com/vllm-project/speculators/pull/899
measured: step counter 300 (1000), distance to the target 2.19, mean update 0.76 of the learning rate
widened: step counter 1000 (1000), distance to the target 2.02, mean update 1.00 of the learning rate
innocent: step counter 300 (1000), distance to the target 2.19, mean update 0.76 of the learning rate
suspect: line 53 harmless (weights rounded once, to a part in 250)

Expectation, written first: the checkpointer converts the whole optimizer state to bfloat16, the step counter too; loading
leaves it as it is, and 300 + 1 is 300 in bfloat16. The bias correction stays that of step 300 for ever while the
second moment fills up, so updates shrink to a fraction of the learning rate. The bfloat16 weights are a single rounding.
"""
import torch
import torch.nn as nn


def convert_float_dtype(tree, dtype):
    return {key: value.detach().clone().to(dtype) for key, value in tree.items()}  # BORN


class AdamW:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8):
        self.params, self.lr, self.betas, self.eps = list(params), lr, betas, eps
        self.state = {"step": torch.tensor(0.0)}
        for i, p in enumerate(self.params):
            self.state[f"exp_avg.{i}"], self.state[f"exp_avg_sq.{i}"] = torch.zeros_like(p), torch.zeros_like(p)

    @torch.no_grad()
    def step(self):
        self.state["step"] += 1
        t = self.state["step"].item()
        for i, p in enumerate(self.params):
            m = self.state[f"exp_avg.{i}"].lerp_(p.grad, 1 - self.betas[0])
            v = self.state[f"exp_avg_sq.{i}"].lerp_(p.grad**2, 1 - self.betas[1])
            denom = (v / (1 - self.betas[1]**t)).sqrt() + self.eps
            p.sub_(self.lr * m / (1 - self.betas[0]**t) / denom)
            p.grad = None

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = {k: v if k == "step" else v.to(self.params[0].dtype) for k, v in state.items()}


class SingleGPUCheckpointer:
    def __init__(self, model, optimizer, float_dtype=torch.bfloat16):
        self.model, self.optimizer, self.float_dtype = model, optimizer, float_dtype

    def save_checkpoint(self):
        return {
            "model": convert_float_dtype(self.model.state_dict(), self.float_dtype),
            "optimizer": convert_float_dtype(self.optimizer.state_dict(), self.float_dtype),  # BORN
        }

    def load_checkpoint(self, checkpoint):
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])


def train(model, optimizer, steps, target):
    before = model.weight.detach().clone()
    for _ in range(steps):
        loss = (model.weight - target).abs().sum()
        loss.backward()
        optimizer.step()
    distance = (model.weight - target).abs().mean().item()
    return distance, (model.weight.detach() - before).abs().mean().item() / steps


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    target = torch.full((8, 8), 3.0)
    model = nn.Linear(8, 8, bias=False)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer, 300, target)
    checkpoint = SingleGPUCheckpointer(model, optimizer).save_checkpoint()
    resumed = nn.Linear(8, 8, bias=False)
    optimizer = AdamW(resumed.parameters(), lr=1e-3)
    SingleGPUCheckpointer(resumed, optimizer).load_checkpoint(checkpoint)
    distance, update = train(resumed, optimizer, 700, target)
    step = optimizer.state["step"].item()
    print(f"step counter {step:.0f} (1000), distance to the target {distance:.2f}, mean update {update * 1e3:.2f} of the learning rate")


main()
