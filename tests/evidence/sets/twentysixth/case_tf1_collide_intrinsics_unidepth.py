"""
title: Camera intrinsics typed in by hand are double, the rays of the model float
expect: collision
thread: https://github.com/lpiccinelli-eth/UniDepth/issues/9
fix_at: (none beside the marked)

Expectation, written first: The demo loaded float32 intrinsics from a file; the user's own np.array of Python floats is
float64 and torch.from_numpy keeps it. The inverse intrinsics stay double and the product with the float pixel grid raises.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def coords_grid(b, h, w):
    y, x = torch.meshgrid(torch.linspace(0.5, h - 0.5, h), torch.linspace(0.5, w - 0.5, w), indexing="ij")
    return torch.stack([x, y], dim=0).unsqueeze(0).repeat(b, 1, 1, 1)


def generate_rays(camera_intrinsics, image_shape):
    batch_size = camera_intrinsics.shape[0]
    height, width = image_shape
    pixels = coords_grid(batch_size, height, width).flatten(2)
    pixel_coords = torch.cat([pixels, torch.ones_like(pixels[:, :1])], dim=1)
    intrinsics_inv = torch.inverse(camera_intrinsics)
    ray_directions = intrinsics_inv.bmm(pixel_coords)  # BORN COLLIDES
    ray_directions = F.normalize(ray_directions, dim=1).permute(0, 2, 1)
    theta = torch.atan2(ray_directions[..., 0], ray_directions[..., -1])
    phi = torch.acos(ray_directions[..., 1].clamp(-1, 1))
    return ray_directions, torch.stack([theta, phi], dim=-1)


class UniDepthV1(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.pixel_encoder = nn.Sequential(nn.Conv2d(3, dim, 3, padding=1), nn.GELU())
        self.ray_embedding = nn.Linear(2, dim)
        self.depth_head = nn.Sequential(nn.Linear(2 * dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def infer(self, rgb, intrinsics=None):
        if rgb.ndim == 3:
            rgb = rgb.unsqueeze(0)
        if intrinsics is not None and intrinsics.ndim == 2:
            intrinsics = intrinsics.unsqueeze(0)
        rgb = rgb.float() / 255.0
        features = self.pixel_encoder(rgb).flatten(2).transpose(1, 2)
        rays, angles = generate_rays(intrinsics, rgb.shape[-2:])  # BORN
        depth = self.depth_head(torch.cat([features, self.ray_embedding(angles)], dim=-1)).exp()
        return {"depth": depth, "points": rays * depth, "intrinsics": intrinsics}


def load_rgb(rng, h, w):
    return torch.from_numpy(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)).permute(2, 0, 1)


@torch.no_grad()
def demo(model):
    rng = np.random.default_rng(9)
    rgb_torch = load_rgb(rng, 18, 32)
    intrinsics = np.array([[21.518, 0.0, 16.139], [0.0, 21.494, 8.835], [0.0, 0.0, 1.0]])  # BORN
    intrinsics_torch = torch.from_numpy(intrinsics)  # BORN
    predictions = model.infer(rgb_torch, intrinsics_torch)  # BORN
    depth_pred = predictions["depth"].squeeze().numpy()
    depth_gt = rng.uniform(0.5, 8.0, size=depth_pred.shape)
    depth_arel = np.abs(depth_gt - depth_pred) / depth_gt
    print(f"ARel: {depth_arel.mean() * 100:.1f}%", "points", tuple(predictions["points"].shape))


if __name__ == "__main__":
    torch.manual_seed(9)
    demo(UniDepthV1().eval())
