"""
title: LoRA adapters are cast to the frozen base's float16, GradScaler refuses to unscale their gradients
expect: collision
fix_at: 52

After https://github.com/huggingface/diffusers/issues/8871 and https://github.com/huggingface/diffusers/issues/10752.
Right: the trained adapters stay float32, only the base is half.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)


class Adapter(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.down.weight, std=0.05)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Denoiser(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.time = nn.Embedding(10, dim)
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x, t):
        return self.second(F.silu(self.first(x + self.time(t))))


def inject(model, rank, weight_dtype):
    for p in model.parameters():
        p.requires_grad_(False)
    model.to(weight_dtype)
    for name in ("first", "second"):
        adapter = Adapter(getattr(model, name), rank)
        adapter.to(weight_dtype)  # BORN
        setattr(model, name, adapter)
    return [p for p in model.parameters() if p.requires_grad]


def train(steps=3):
    model = Denoiser()
    trainable = inject(model, 4, torch.float16)
    optimizer = torch.optim.AdamW(trainable, lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(steps):
        x, t = torch.randn(8, 16), torch.randint(0, 10, (8,))
        noise = torch.randn_like(x)
        with torch.autocast("cpu", dtype=torch.float16):
            predicted = model(x + noise, t)
        loss = F.mse_loss(predicted.float(), noise)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # COLLIDES
        nn.utils.clip_grad_norm_(trainable, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(step, round(loss.item(), 3))


train()
