"""
title: federated clients send gradients as half, those of a well-scaled loss lie below its smallest number
expect: silent:underflow|precision-loss|downcast|lost-update

After https://github.com/pytorch/pytorch/pull/57410 (fp16 compression, the other end of the range) and
https://github.com/jasperzhong/read-papers-and-code/issues/122 (gradients below 2^-24 are zero). The bfloat16 weights sent down are innocent enough.
Here all of the gradient is zero on arrival and the loss stays (repaired: none, the loss falls to a tenth). Right: scale, or send bfloat16 or float32.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(29)


class Channel:
    def __init__(self):
        self.sent, self.zero = 0, 0

    def up(self, gradients):
        packed = [g.half() for g in gradients]  # BORN
        self.sent += sum(p.numel() for p in packed)
        self.zero += sum(int((p == 0).sum()) for p in packed)
        return packed

    def down(self, weights):
        return [w.detach().to(torch.bfloat16) for w in weights]


class Client:
    def __init__(self, seed, samples=64):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(samples, 12, generator=g)
        self.y = 1e-4 * self.x[:, :3].sum(1, keepdim=True)
        self.model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))

    def gradients(self, weights, scale):
        with torch.no_grad():
            for p, w in zip(self.model.parameters(), weights):
                p.copy_(w)
        loss = F.mse_loss(self.model(self.x) * scale, self.y)
        return torch.autograd.grad(loss, list(self.model.parameters())), loss.item()


server = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(server.parameters(), lr=0.02)
channel, clients = Channel(), [Client(seed) for seed in range(4)]
for round_ in range(20):
    collected, losses = [], []
    for client in clients:
        gradients, loss = client.gradients(channel.down(server.parameters()), scale=1e-4)
        collected.append(channel.up(gradients))
        losses.append(loss)
    for p, *parts in zip(server.parameters(), *collected):
        p.grad = torch.stack([g.float() for g in parts]).mean(0) * 1e8
    optimizer.step()
print("loss", f"{sum(losses) / len(losses):.3e}", "zero on arrival", round(channel.zero / channel.sent, 3))
