"""
title: leaving train mode of a schedule-free optimizer interpolates half weights with a float32 iterate
expect: collision
thread: https://github.com/LoganBooker/prodigy-plus-schedule-free/issues/10
fix_at: 15, 17, 22, 45, 47

Expectation, written first: the weights are bfloat16 and the optimizer keeps its fast iterate z in float32;
lerp_ takes only an end of the dtype of the tensor it changes.
"""
import torch
from torch import nn


class ScheduleFreeSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05, beta1=0.9, state_dtype="float32"):
        super().__init__(params, dict(lr=lr, beta1=beta1, k=0, train_mode=True))
        self.state_dtype = getattr(torch, state_dtype)

    def init_state(self, p):
        state = self.state[p]
        if "z" not in state:
            state["z"] = p.detach().to(self.state_dtype, copy=True)  # BORN
        return state

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            weight = 1 / group["k"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                z = self.init_state(p)["z"]
                grad = p.grad.to(z.dtype)
                x = p.to(z.dtype).lerp(z, weight)
                z.sub_(grad, alpha=group["lr"])
                p.copy_(x.lerp(z, 1 - group["beta1"]))

    @torch.no_grad()
    def eval(self):
        for group in self.param_groups:
            if not group["train_mode"]:
                continue
            for p in group["params"]:
                z = self.state[p].get("z")
                if z is not None:
                    p.lerp_(end=z.to(p.device), weight=1 - 1 / group["beta1"])  # COLLIDES
            group["train_mode"] = False


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x):
        return self.body(x)


def train(dtype, steps=10):
    torch.manual_seed(0)
    model = Classifier().to(dtype)
    opt = ScheduleFreeSGD(model.parameters())
    x = torch.randn(64, 8, dtype=dtype)
    y = (x[:, 0] > 0).long()
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x).float(), y)
        model.zero_grad()
        loss.backward()
        opt.step()
    opt.eval()
    return (model(x).argmax(1) == y).float().mean().item()


print(f"accuracy {train(torch.bfloat16):.3f}")
