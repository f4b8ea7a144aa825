"""
title: a fooled discriminator's sigmoid is exactly 1 in bfloat16 and gives no gradient
expect: silent:zero-gradient|precision-loss|underflow
modes: diagnose

After bf16 GAN / reward-model losses through sigmoid + BCELoss instead of the logits (senpai#328, sentence-transformers#3800).
Damage: p(1-p) = 0 for the fakes it believes in most: no gradient for 64 of 64 examples, the loss is clipped at 100 (logits in float32: none, 7.6).
Right change: binary_cross_entropy_with_logits on float32 logits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, x):
        return 9.0 * self.net(x).squeeze(-1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, z):
        return self.net(z)


def fake_loss(logits):
    p = torch.sigmoid(logits)  # BORN
    return F.binary_cross_entropy(p, torch.zeros_like(p))  # BORN


torch.manual_seed(0)
dis = Discriminator().to(torch.bfloat16)  # BORN
gen = Generator().to(torch.bfloat16)
with torch.no_grad():
    dis.net[2].bias.fill_(0.9)
opt = torch.optim.SGD(dis.parameters(), lr=1e-2)
for step in range(2):
    with torch.no_grad():
        fake = gen(torch.randn(64, 4, dtype=torch.bfloat16))
    logits = dis(fake)
    logits.retain_grad()
    loss = fake_loss(logits)
    opt.zero_grad()
    loss.backward()
    if step == 0:
        print("loss", round(loss.item(), 3), "examples without gradient", int((logits.grad == 0).sum()), "of 64")
    opt.step()
