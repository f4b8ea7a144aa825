"""
title: half-sized checkpoint, loaded with assign=True into a float32 model with a new head
expect: collision
fix_at: 43, 47, 59

After kohya-ss/sd-scripts#2364 (bf16/float after a partial load): assign=True keeps the file's dtype.
Right change: load without assign (copies into float32), or cast the model after loading.
"""
import io

import torch
import torch.nn as nn


class Backbone(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.proj = nn.Linear(8, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        h = torch.relu(self.norm(self.stem(x))).mean((2, 3))
        return self.head(torch.relu(self.proj(h)))  # COLLIDES


def save_slim(model):
    """Weights only, in sixteen bits, without the head."""
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("head")}
    state = {k: v.to(torch.bfloat16) if k.startswith("proj") else v for k, v in state.items()}  # BORN
    f = io.BytesIO()
    torch.save({"model": state, "step": 100}, f)
    f.seek(0)
    return f


def resume(f, classes):
    ckpt = torch.load(f, weights_only=True)
    model = Backbone(classes)
    missing, unexpected = model.load_state_dict(ckpt["model"], strict=False, assign=True)  # BORN
    assert not unexpected
    return model, ckpt["step"]


def finetune(model, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


torch.manual_seed(0)
checkpoint = save_slim(Backbone(10))
model, step = resume(checkpoint, 5)
print("resumed at", step)
print("loss", finetune(model, 3))
