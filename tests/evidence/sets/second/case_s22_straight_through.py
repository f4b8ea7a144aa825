"""
title: a straight-through quantiser sends its gradient back in float16, where it is zero
expect: silent:zero-gradient|underflow|gradient-dtype|downcast
modes: diagnose

After pytorch/pytorch#87979 (a hand-written backward runs in float16). The loss is a weighted mean over
131,072 numbers, the gradients are near 1e-8, float16's smallest is 6e-8: the encoder's gradient norm is 2e-6 in the first step and
exactly 0 from then on, the decoder trains (repaired: the encoder's is 9e-4 to 3e-4). Right: leave the gradient in its dtype.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(35)


class Quantise(torch.autograd.Function):
    """Rounds to 2 ** bits levels in [-1, 1]; the gradient passes where nothing was clipped."""

    @staticmethod
    def forward(ctx, x, bits):
        ctx.save_for_backward(x.abs() <= 1)
        levels = 2 ** (bits - 1) - 1
        return (x.clamp(-1, 1) * levels).round() / levels

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        passed = grad.half() * inside  # BORN
        return passed, None


class Autoencoder(nn.Module):
    def __init__(self, channels=4, code=8):
        super().__init__()
        self.encoder = nn.Conv2d(channels, code, 3, padding=1)
        self.decoder = nn.Conv2d(code, channels, 3, padding=1)

    def forward(self, x, bits=4):
        return self.decoder(Quantise.apply(torch.tanh(self.encoder(x)), bits))


def images(number=8, size=64):
    smooth = torch.randn(number, 4, size // 8, size // 8)
    return 0.05 * F.interpolate(smooth, size=(size, size), mode="bilinear", align_corners=False)


def norm(module):
    return torch.stack([p.grad.square().sum() for p in module.parameters()]).sum().sqrt().item()


def main(steps=4, weight=0.01):
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        batch = images()
        loss = weight * F.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        encoder, decoder = norm(model.encoder), norm(model.decoder)
        optimizer.step()
        print(step, "loss", f"{loss.item():.3e}", f"gradient norms: encoder {encoder:.2e} decoder {decoder:.2e}")


main()
