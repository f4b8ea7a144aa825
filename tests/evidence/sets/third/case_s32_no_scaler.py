"""
title: float16 autocast without a GradScaler
expect: silent:underflow|zero-gradient|lost-update|plan
modes: diagnose

After fp16 fine-tunes with a mean over many pixels (VideoX-Fun#250-like: scaler forgotten).
Damage: the encoder's gradient is exactly 0 (repaired: 2e-6 in norm): it never trains. Right change: GradScaler, or bfloat16.
"""
import torch
import torch.nn as nn


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(24, 32)
        self.dec = nn.Linear(32, 64)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, eps=1e-12)
        self.weight = 1e-4  # weight of this term in the whole objective

    def step(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            pred = self.model(x)
            loss = self.weight * nn.functional.smooth_l1_loss(pred.float(), y)
        self.opt.zero_grad()
        loss.backward()  # BORN
        norm = self.model.enc.weight.grad.norm().item()
        self.opt.step()
        return loss.item(), norm


torch.manual_seed(0)
trainer = Trainer(Depth())
start = trainer.model.enc.weight.detach().clone()
for i in range(3):
    x = torch.randn(256, 24)
    loss, norm = trainer.step(x, torch.relu(x[:, :1]).expand(-1, 64) * 0.3)
    print("step", i, "encoder gradient", norm)
print("encoder moved", (trainer.model.enc.weight - start).abs().max().item())
