"""
title: the checkpoint writer slims the optimizer moments to bfloat16, the loader puts them back as they are
expect: collision
fix_at: 49

After https://github.com/vllm-project/speculators/pull/899 and https://github.com/TensorAuto/OpenTau/issues/184.
Right: write the moments in full precision (or widen them while loading).
"""
import io

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(8)


class Regressor(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x)[:, 0]


class Checkpointer:
    """Keeps the weights as they are and the optimizer state small."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def names(self):
        return {name: p for name, p in self.model.named_parameters()}

    def save(self, file):
        moments = {}
        for name, p in self.names().items():
            state = self.optimizer.state[p]
            moments[name] = {"step": state["step"],
                             "exp_avg": state["exp_avg"].bfloat16(),  # BORN
                             "exp_avg_sq": state["exp_avg_sq"].bfloat16()}  # BORN
        torch.save({"model": self.model.state_dict(), "moments": moments}, file)

    def load(self, file):
        stored = torch.load(file)
        self.model.load_state_dict(stored["model"])
        for name, p in self.names().items():
            self.optimizer.state[p] = dict(stored["moments"][name])


def run(model, optimizer, steps, start=0):
    for step in range(start, start + steps):
        x = torch.randn(32, 6)
        loss = F.mse_loss(model(x), x.sum(1).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # COLLIDES
        print(step, round(loss.item(), 4))


def fresh():
    model = Regressor()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


file = io.BytesIO()
model, optimizer = fresh()
run(model, optimizer, 3)
Checkpointer(model, optimizer).save(file)
file.seek(0)
model, optimizer = fresh()
Checkpointer(model, optimizer).load(file)
run(model, optimizer, 3, start=3)
