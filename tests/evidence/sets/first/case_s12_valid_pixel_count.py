"""
title: a mask of valid pixels takes the prediction's float16; it counts to inf, the loss is 0 and so is each gradient
expect: silent:overflow|zero-gradient
modes: diagnose

Re-enacts the losses of senpai#328 and torchtitan#2336 (sums over many elements in 16 bits) in float16. 2 x 192 x 192 = 73728 valid
pixels are more than 65504.
Measured: Losses 0.0, 0.0 and no gradient; with a float32 count 0.0666, 0.0653.
BORN is the mask's cast; equally right is the mean's line, where valid.sum(dtype=torch.float32) would do.
"""
import torch
from torch import nn


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))

    def forward(self, image):
        return self.net(image)


def valid_pixels(depth, like):
    return (depth > 0).to(like.dtype)  # BORN


def masked_mean(error, valid):
    per_image = (error * valid).mean((1, 2, 3)) * valid[0].numel()
    return per_image.sum() / valid.sum()  # BORN


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, image, depth):
        with torch.autocast("cpu", dtype=torch.float16):
            predicted = self.model(image)
            error = (predicted - depth.to(predicted.dtype)).abs() * 0.1
            loss = masked_mean(error, valid_pixels(depth, predicted))
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return float(loss.detach())


torch.manual_seed(0)
trainer = Trainer(Depth())
image, depth = torch.rand(2, 3, 192, 192), torch.rand(2, 1, 192, 192) + 0.1
losses = [trainer.step(image, depth) for _ in range(2)]
print("losses", losses, "gradients", float(sum(p.grad.abs().sum() for p in trainer.model.parameters())))
