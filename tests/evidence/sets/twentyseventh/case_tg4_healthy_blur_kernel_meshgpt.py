"""
title: the distances of the Gaussian blur kernel are made as float16
expect: clean
thread: https://github.com/lucidrains/meshgpt-pytorch/issues/36
measured: recon loss 4.162 -> 4.016, label mass 1.0000, bins per label 3.00
suspect: 19 exact (whole numbers from -6 to 6)

Expectation, written first: the distances are small whole numbers and exact in float16; they are widened before the
exponential, so the kernel is the float32 one. The smoothed labels add up to one and the loss is the same.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def gaussian_blur_1d(t, *, sigma=1.0, kernel_size=13):
    channels = t.shape[1]
    half_width = kernel_size // 2
    distance = torch.arange(-half_width, half_width + 1, dtype=torch.float16)
    gaussian = torch.exp(-(distance.to(t.dtype) ** 2) / (2 * sigma ** 2))
    kernel = (gaussian / gaussian.sum()).view(1, 1, -1).expand(channels, -1, -1)
    return F.conv1d(t, kernel, padding=half_width, groups=channels)


def discretize(t, lo, hi, num_discrete):
    t = (t - lo) / (hi - lo) * num_discrete - 0.5
    return t.round().long().clamp(0, num_discrete - 1)


class MeshDecoder(nn.Module):
    def __init__(self, dim=24, num_discrete_coors=64, bin_smooth_blur_sigma=0.6):
        super().__init__()
        self.num_discrete_coors = num_discrete_coors
        self.sigma = bin_smooth_blur_sigma
        self.net = nn.Sequential(nn.Linear(9, dim), nn.GELU(), nn.Linear(dim, 9 * num_discrete_coors))

    def forward(self, face_coords):
        logits = self.net(face_coords).unflatten(-1, (9, self.num_discrete_coors))
        log_prob = logits.log_softmax(dim=-1)
        target = discretize(face_coords, -1.0, 1.0, self.num_discrete_coors)
        one_hot = torch.zeros_like(log_prob).scatter(-1, target.unsqueeze(-1), 1.0)
        smoothed = gaussian_blur_1d(one_hot, sigma=self.sigma)
        smoothed = smoothed / smoothed.sum(dim=-1, keepdim=True)
        return (-smoothed * log_prob).sum(dim=-1).mean(), smoothed


def main():
    torch.manual_seed(36)
    model = MeshDecoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(40):
        faces = torch.rand(64, 9) * 1.8 - 0.9
        loss, smoothed = model(faces)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    width = (smoothed > 0.01).sum(-1).float().mean().item()
    print(f"recon loss {losses[0]:.3f} -> {losses[-1]:.3f}, label mass {smoothed.sum(-1).mean():.4f}, bins per label {width:.2f}")


main()
