"""
title: checkpoints store Adam's moments in float16, where the second one is zero
expect: silent:underflow|round-trip|downcast|precision-loss
modes: diagnose

After TensorAuto/OpenTau#184 and vllm-project/speculators#899 (moments narrowed in the checkpoint, widened again by load_state_dict, no error).
Squares of gradients near 1e-5 are below float16's 6e-8: all of exp_avg_sq comes back as 0, the first steps after the resume divide
by next to nothing: in six steps the weights move by 0.96 (repaired: 0.043) and the loss is 1.3 to 3.6 times the repaired one. Right: save the state as it is.
"""
import io

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(34)


def slim(value):
    """Optimizer state is two thirds of the file; halve it."""
    if isinstance(value, dict):
        return {key: slim(inner) for key, inner in value.items()}
    if torch.is_tensor(value) and value.is_floating_point() and value.dim() > 0:
        return value.half()  # BORN
    return value


class Checkpoint:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def save(self, step):
        file = io.BytesIO()
        state = self.optimizer.state_dict()
        state = {"state": slim(state["state"]), "param_groups": state["param_groups"]}
        torch.save({"model": self.model.state_dict(), "optimizer": state, "step": step}, file)
        file.seek(0)
        return file

    def load(self, file):
        saved = torch.load(file, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        return saved["step"]


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return model, optimizer, Checkpoint(model, optimizer)


def train(model, optimizer, start, steps):
    losses = []
    for step in range(start, start + steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 8, generator=generator)
        y = torch.sin(x[:, :1]) + 0.2 * torch.randn(8, 1, generator=generator)
        loss = 1e-3 * F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(1e3 * loss.item())
    return losses


def main():
    model, optimizer, checkpoint = build()
    before = train(model, optimizer, 0, 300)
    file = checkpoint.save(300)
    model, optimizer, checkpoint = build()
    start = checkpoint.load(file)
    loaded = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    after = train(model, optimizer, start, 6)
    moved = torch.cat([p.detach().flatten() for p in model.parameters()]) - loaded
    print("last six before", [round(value, 3) for value in before[-6:]])
    print("first six after", [round(value, 3) for value in after], "weights moved by", round(moved.norm().item(), 3))


main()
