"""
title: body fitting converts rotations to quaternions with `1 - mask` on bool masks
expect: collision
thread: https://github.com/vchoutas/smplify-x/issues/130
fix_at: 32 34 38 39

Expectation, written first: the conversion picks one of four formulas with masks made by comparisons, which are bool tensors. The masks are inverted
with `1 - mask`, which torch refuses for bool. The inversion must be `~mask`, or the masks must be cast to the float dtype where they are made.
"""
import torch
import torch.nn as nn


def angle_axis_to_rotation_matrix(angle_axis):
    theta = angle_axis.norm(dim=1, keepdim=True).clamp(min=1e-8)
    x, y, z = (angle_axis / theta).unbind(dim=1)
    zero = torch.zeros_like(x)
    k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).view(-1, 3, 3)
    s, c = torch.sin(theta)[:, :, None], torch.cos(theta)[:, :, None]
    return torch.eye(3) + s * k + (1 - c) * (k @ k)


def rotation_matrix_to_quaternion(rotation_matrix, eps=1e-6):
    r = rotation_matrix.transpose(1, 2)
    d0, d1, d2 = r[:, 0, 0], r[:, 1, 1], r[:, 2, 2]
    t0, t1, t2, t3 = 1 + d0 - d1 - d2, 1 - d0 + d1 - d2, 1 - d0 - d1 + d2, 1 + d0 + d1 + d2
    q0 = torch.stack([r[:, 1, 2] - r[:, 2, 1], t0, r[:, 0, 1] + r[:, 1, 0], r[:, 2, 0] + r[:, 0, 2]], -1)
    q1 = torch.stack([r[:, 2, 0] - r[:, 0, 2], r[:, 0, 1] + r[:, 1, 0], t1, r[:, 1, 2] + r[:, 2, 1]], -1)
    q2 = torch.stack([r[:, 0, 1] - r[:, 1, 0], r[:, 2, 0] + r[:, 0, 2], r[:, 1, 2] + r[:, 2, 1], t2], -1)
    q3 = torch.stack([t3, r[:, 1, 2] - r[:, 2, 1], r[:, 2, 0] - r[:, 0, 2], r[:, 0, 1] - r[:, 1, 0]], -1)

    mask_d2 = d2 < eps
    mask_d0_d1 = d0 > d1  # BORN
    mask_d0_nd1 = d0 < -d1

    c0 = mask_d2 * mask_d0_d1
    c1 = mask_d2 * (1 - mask_d0_d1)  # BORN COLLIDES
    c2 = (1 - mask_d2) * mask_d0_nd1
    c3 = (1 - mask_d2) * (1 - mask_d0_nd1)
    c0, c1, c2, c3 = (c.view(-1, 1).type_as(q0) for c in (c0, c1, c2, c3))
    t_rep = t0[:, None] * c0 + t1[:, None] * c1 + t2[:, None] * c2 + t3[:, None] * c3
    q = q0 * c0 + q1 * c1 + q2 * c2 + q3 * c3
    return q / torch.sqrt(t_rep) * 0.5


class AngleAxisFit(nn.Module):
    def __init__(self, joints):
        super().__init__()
        self.body_pose = nn.Parameter(torch.zeros(joints, 3) + 0.1)

    def forward(self):
        return angle_axis_to_rotation_matrix(self.body_pose)


def fit_single_frame(target_pose, steps=3):
    fit = AngleAxisFit(target_pose.shape[0])
    optimizer = torch.optim.SGD(fit.parameters(), lr=0.1)
    target_q = rotation_matrix_to_quaternion(angle_axis_to_rotation_matrix(target_pose))
    for _ in range(steps):
        loss = (1 - (rotation_matrix_to_quaternion(fit()) * target_q).sum(dim=1) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    print("final loss", fit_single_frame(torch.randn(6, 3) * 0.7))
