"""
title: rotation matrices of body joints become quaternions and a comparison mask is inverted with one minus
expect: collision
thread: https://github.com/vchoutas/smplify-x/issues/130
fix_at: 24, 32, 33

Expectation, written first: comparisons give bool tensors since torch 1.2; the old recipe inverts such a mask by
subtracting it from one, and subtraction with a bool tensor is refused.
"""
import torch
from torch import nn


def axis_angle_to_matrix(r):
    angle = r.norm(dim=-1, keepdim=True).clamp(min=1e-8)
    x, y, z = (r / angle).unbind(-1)
    zero = torch.zeros_like(x)
    k = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))
    angle = angle[..., None]
    return torch.eye(3) + angle.sin() * k + (1 - angle.cos()) * (k @ k)


def inverted(mask):
    return 1 - mask  # BORN COLLIDES


def rotation_matrix_to_quaternion(m, eps=1e-6):
    m = m.transpose(-1, -2)
    d0, d1, d2 = m[:, 0, 0], m[:, 1, 1], m[:, 2, 2]
    t0, q0 = 1 + d0 - d1 - d2, (m[:, 1, 2] - m[:, 2, 1], 1 + d0 - d1 - d2, m[:, 0, 1] + m[:, 1, 0], m[:, 2, 0] + m[:, 0, 2])
    t3, q3 = 1 + d0 + d1 + d2, (1 + d0 + d1 + d2, m[:, 1, 2] - m[:, 2, 1], m[:, 2, 0] - m[:, 0, 2], m[:, 0, 1] - m[:, 1, 0])
    negative = d0 + d1 + d2 < eps  # BORN
    positive = inverted(negative)
    w0, w3 = negative[:, None].to(m), positive[:, None].to(m)
    q = torch.stack(q0, -1) * w0 + torch.stack(q3, -1) * w3
    t = t0[:, None] * w0 + t3[:, None] * w3
    return 0.5 * q / t.clamp(min=eps).sqrt()


class PosePrior(nn.Module):
    """a small decoder of poses, as the fitting uses it"""

    def __init__(self, joints=5, latent=6):
        super().__init__()
        self.joints = joints
        self.decode = nn.Sequential(nn.Linear(latent, 24), nn.Tanh(), nn.Linear(24, 3 * joints))

    def forward(self, z):
        return axis_angle_to_matrix(self.decode(z).view(-1, 3))


class FitBody:
    def __init__(self, prior, target):
        self.prior, self.target = prior, target
        self.z = torch.zeros(len(target) // prior.joints, 6, requires_grad=True)

    def loss(self):
        q = rotation_matrix_to_quaternion(self.prior(self.z))
        return (1 - (q * self.target).sum(-1).square()).mean()

    def run(self, steps=20):
        opt = torch.optim.Adam([self.z], lr=0.05)
        for _ in range(steps):
            opt.zero_grad()
            loss = self.loss()
            loss.backward()
            opt.step()
        return loss.item()


def main():
    torch.manual_seed(3)
    target = nn.functional.normalize(torch.randn(10, 4), dim=-1)
    print(f"misfit {FitBody(PosePrior(), target).run():.4f}")


main()
