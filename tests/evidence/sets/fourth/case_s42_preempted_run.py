"""
title: a preemptible run keeps float32 weights but writes its checkpoints in bfloat16 and resumes often
expect: silent:round-trip|lost-update|precision-loss|downcast
fix_at: 45

After https://github.com/TensorAuto/OpenTau/issues/185 (precision lost at each resume) and https://github.com/NVIDIA/apex/pull/42. Steps of 1e-4
between two resumes are smaller than what bfloat16 keeps of a weight near 1. Autocast is innocent.
Here the gains end where they began, 0.0 away (repaired: 0.02). Right: write the checkpoint in float32.
"""
import io

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(32)


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.inner = nn.Linear(dim, dim)
        self.gain = nn.Parameter(torch.ones(dim))
        self.inner.requires_grad_(False)

    def forward(self, x):
        h = torch.tanh(self.inner(x))
        return h.float() * self.gain


class Checkpoint:
    def __init__(self):
        self.bytes = None

    def write(self, model, step):
        file = io.BytesIO()
        weights = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}  # BORN
        torch.save({"step": step, "weights": weights}, file)
        self.bytes = file.getvalue()

    def resume(self):
        model, step = Net(), 0
        if self.bytes is not None:
            stored = torch.load(io.BytesIO(self.bytes))
            model.load_state_dict(stored["weights"])
            step = stored["step"]
        return model, step


def run_until_preempted(checkpoint, target, steps=3):
    model, start = checkpoint.resume()
    optimizer = torch.optim.SGD([model.gain], lr=2.5e-2)
    for step in range(start, start + steps):
        x = torch.randn(64, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        loss = F.mse_loss(y.float(), target * torch.tanh(model.inner(x)).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    checkpoint.write(model, start + steps)
    return model, loss.item()


checkpoint, target = Checkpoint(), 2.0
for preemption in range(10):
    torch.manual_seed(100)
    if checkpoint.bytes is None:
        checkpoint.write(Net(), 0)
    torch.manual_seed(200 + preemption)
    model, loss = run_until_preempted(checkpoint, target)
model, step = checkpoint.resume()
print("step", step, "loss", round(loss, 4), "gain moved", round((model.gain.float() - 1).abs().mean().item(), 5))
