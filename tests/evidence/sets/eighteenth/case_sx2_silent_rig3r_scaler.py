"""
title: the ray head never learns: fp16 autocast without loss scaling rounds its gradients to zero
expect: silent:underflow|zero-gradient|gradient-dtype|plan
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: depth loss 1138.7 -> 1003.0, ray loss 0.8986 -> 0.8986
widened: depth loss 1138.7 -> 1002.9, ray loss 0.8981 -> 0.0463
innocent: depth loss 1138.7 -> 1003.0, ray loss 0.8986 -> 0.8986
suspect: line 44 harmless (unit directions to three digits)

Expectation, written first: autocast runs in float16 and backward is called without a GradScaler. The ray loss is a mean
over many rays with a small weight, so its gradient with respect to each float16 output is below 3e-8 and becomes zero,
while the depth term, in metres, trains. The ray targets stored in float16 are harmless.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Rig3R(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.depth_head = nn.Linear(dim, 1)
        self.ray_head = nn.Linear(dim, 3)

    def forward(self, tokens):
        return {"depth": self.depth_head(tokens), "rays": self.ray_head(tokens)}


class MultiTaskLoss(nn.Module):
    def __init__(self, ray_weight=1e-5):
        super().__init__()
        self.ray_weight = ray_weight

    def forward(self, outputs, targets):
        depth = F.mse_loss(outputs["depth"].float(), targets["depth"])
        rays = (1 - F.cosine_similarity(outputs["rays"].float(), targets["rays"], dim=-1)).mean()
        return depth + self.ray_weight * rays, depth.item(), rays.item()


def make_scene(tokens=20000, dim=16):
    features = torch.randn(tokens, dim)
    depth = 30 + features @ torch.randn(dim, 1) * 4
    rays = F.normalize(features @ torch.randn(dim, 3) + 0.2, dim=-1)
    rays = rays.to(torch.float16).float()
    return features, {"depth": depth, "rays": rays}


class SignDescent:
    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr

    @torch.no_grad()
    def step(self):
        for p in self.params:
            p.sub_(self.lr * p.grad.sign())
            p.grad = None


def train(model, scene, steps=10):
    criterion = MultiTaskLoss()
    optimizer = SignDescent(model.parameters(), lr=0.1)
    history = []
    for step in range(steps):
        features, targets = scene
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            outputs = model(features)
        loss, depth, rays = criterion(outputs, targets)
        loss.backward()  # BORN
        optimizer.step()
        history.append((depth, rays))
    return history


def main():
    torch.manual_seed(0)
    model = Rig3R()
    history = train(model, make_scene())
    print(f"depth loss {history[0][0]:.1f} -> {history[-1][0]:.1f}, ray loss {history[0][1]:.4f} -> {history[-1][1]:.4f}")


main()
