"""
title: Projection of float32 Gaussians with a camera matrix that left autocast as bfloat16
expect: collision
thread: https://github.com/silent-chen/DGE/issues/11
fix_at: (none beside the marked)

Expectation, written first: The cameras are built inside the trainer's autocast region, so the product of view
and projection matrix comes out in bfloat16. The renderer runs outside autocast with float32 points and its matmul
of points and full_proj_transform raises.
"""
import math

import torch
import torch.nn as nn


def getProjectionMatrix(znear, zfar, fov):
    P = torch.zeros(4, 4)
    P[0, 0] = P[1, 1] = 1 / math.tan(fov / 2)
    P[3, 2] = 1.0
    P[2, 2] = zfar / (zfar - znear)
    P[2, 3] = -(zfar * znear) / (zfar - znear)
    return P


class Simple_Camera:
    def __init__(self, uid, angle, fov=0.9, size=16):
        self.uid, self.size = uid, size
        view = torch.eye(4)
        c, s = math.cos(angle), math.sin(angle)
        view[0, 0], view[0, 2], view[2, 0], view[2, 2] = c, s, -s, c
        view[2, 3] = 4.0
        self.world_view_transform = view.transpose(0, 1)
        self.projection_matrix = getProjectionMatrix(0.01, 100.0, fov).transpose(0, 1)
        self.full_proj_transform = self.world_view_transform @ self.projection_matrix  # BORN


class GaussianModel(nn.Module):
    def __init__(self, n):
        super().__init__()
        self._xyz = nn.Parameter(torch.randn(n, 3) * 0.5)
        self._color = nn.Parameter(torch.rand(n, 3))
        self._opacity = nn.Parameter(torch.zeros(n, 1))


def render(viewpoint_camera, pc, sigma=0.15):
    ones = torch.ones(len(pc._xyz), 1)
    projmatrix = viewpoint_camera.full_proj_transform  # BORN
    p_hom = torch.cat([pc._xyz, ones], dim=1) @ projmatrix  # COLLIDES
    p_proj = p_hom[:, :2] / (p_hom[:, 3:] + 1e-7)
    axis = torch.linspace(-1, 1, viewpoint_camera.size)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 1, 2)
    weight = torch.exp(-(grid - p_proj).square().sum(-1) / sigma ** 2) * torch.sigmoid(pc._opacity).T
    return (weight @ pc._color) / (weight.sum(-1, keepdim=True) + 1.0)


class DGESystem:
    def __init__(self, n_views):
        self.gaussian, self.n_views = GaussianModel(40), n_views
        self.origin_frames = {}

    def setup_cameras(self):
        self.cameras = [Simple_Camera(i, 0.4 * i) for i in range(self.n_views)]

    @torch.no_grad()
    def render_all_view(self):
        for cam in self.cameras:
            self.origin_frames[cam.uid] = render(cam, self.gaussian)
        return torch.stack(list(self.origin_frames.values())).mean().item()

    def training_step(self, optimizer, target):
        loss = sum((render(cam, self.gaussian) - target).abs().mean() for cam in self.cameras) / self.n_views
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()


def fit(system, precision="bf16-mixed", steps=3):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16-mixed"):  # BORN
        system.setup_cameras()
    print("origin mean", round(system.render_all_view(), 4))
    optimizer = torch.optim.Adam(system.gaussian.parameters(), lr=0.02)
    for step in range(steps):
        print("step", step, "loss", round(system.training_step(optimizer, 0.4), 4))


if __name__ == "__main__":
    torch.manual_seed(11)
    fit(DGESystem(3))
