"""
title: reparameterisation noise drawn in the dtype of the mean
expect: clean

The latent stays half all the way into the transposed convolution.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 2 * latent))

    def forward(self, x):
        mean, log_variance = self.body(x).chunk(2, dim=-1)
        return mean, log_variance.clamp(-8, 8)


def draw(mean, log_variance):
    noise = torch.randn(*mean.shape, dtype=mean.dtype)
    return torch.addcmul(mean, noise, torch.exp(0.5 * log_variance))


class Decoder(nn.Module):
    def __init__(self, latent, classes):
        super().__init__()
        self.classes = classes
        self.up = nn.ConvTranspose2d(latent + classes, 8, 4)
        self.out = nn.ConvTranspose2d(8, 1, 2, stride=2)

    def forward(self, z, label):
        hint = F.one_hot(label, self.classes).to(self.out.weight.dtype)
        seed = torch.cat([z, hint], dim=-1)[..., None, None]
        return torch.sigmoid(self.out(F.relu(self.up(seed))))


class ConditionalVAE(nn.Module):
    def __init__(self, latent=6, classes=3):
        super().__init__()
        self.encoder, self.decoder = Encoder(latent), Decoder(latent, classes)

    def forward(self, x, label):
        mean, log_variance = self.encoder(x)
        return self.decoder(draw(mean, log_variance), label), mean, log_variance


torch.manual_seed(0)
model = ConditionalVAE().half()
picture, *_ = model(torch.rand(2, 1, 8, 8).half(), torch.tensor([0, 2]))
print(picture.shape)
