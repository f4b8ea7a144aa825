"""
title: Ray directions from a float64 camera matrix enter the float32 texture network
expect: collision
thread: https://github.com/bennyguo/instant-nsr-pl/issues/66
fix_at: (none beside the marked)

Expectation, written first: The custom dataset inverts the world matrix in NumPy, so c2w and the rays made from
it are float64. Positions are clipped and cast by the hash-like encoding, but the view directions go straight into
the texture MLP next to the float32 features: cat promotes to float64 and the linear layer raises.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def get_ray_directions(W, H, fx, fy, cx, cy):
    i, j = torch.meshgrid(torch.arange(W, dtype=torch.float32) + 0.5, torch.arange(H, dtype=torch.float32) + 0.5,
                          indexing="xy")
    return torch.stack([(i - cx) / fx, -(j - cy) / fy, -torch.ones_like(i)], -1)


def get_rays(directions, c2w):
    rays_d = (directions[:, None, :] * c2w[None, :3, :3]).sum(-1)  # BORN
    rays_o = c2w[:3, 3].expand(rays_d.shape)
    return rays_o, rays_d


class CustomDataset:
    def __init__(self, n_images, wh=(12, 10)):
        self.directions = get_ray_directions(*wh, 14.0, 14.0, wh[0] / 2, wh[1] / 2)
        rng = np.random.default_rng(66)
        poses = []
        for _ in range(n_images):
            w2c = np.eye(4)  # BORN
            w2c[:3, :3] = np.linalg.qr(rng.standard_normal((3, 3)))[0]
            w2c[:3, 3] = rng.standard_normal(3) * 0.1
            poses.append(torch.from_numpy(np.linalg.inv(w2c)[:3]))  # BORN
        self.all_c2w = torch.stack(poses)  # BORN
        self.all_images = torch.rand(n_images, wh[1], wh[0], 3)

    def sample(self, n):
        index = torch.randint(0, len(self.all_images), (1,)).item()
        x, y = torch.randint(0, 12, (n,)), torch.randint(0, 10, (n,))
        rays_o, rays_d = get_rays(self.directions[y, x], self.all_c2w[index])  # BORN
        return torch.cat([rays_o, F.normalize(rays_d, dim=-1)], -1), self.all_images[index, y, x]


class FrequencyEncoding(nn.Module):
    def forward(self, x):
        x = x.float().clamp(-2, 2)
        return torch.cat([x] + [f(x * 2 ** k) for k in range(3) for f in (torch.sin, torch.cos)], -1)


class VolumeRadiance(nn.Module):
    def __init__(self, feature_dim):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(feature_dim + 3, 24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, features, dirs):
        dirs = (dirs + 1.0) / 2.0
        network_inp = torch.cat([features, dirs], -1)  # BORN
        return torch.sigmoid(self.network(network_inp))  # COLLIDES


class NeuSModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoding = FrequencyEncoding()
        self.geometry = nn.Sequential(nn.Linear(21, 24), nn.Softplus(), nn.Linear(24, 9))
        self.texture = VolumeRadiance(8)

    def forward(self, rays):
        rays_o, rays_d = rays[:, :3], rays[:, 3:]
        rgb, weight = 0.0, 0.0
        for t in (0.3, 0.6, 0.9):
            out = self.geometry(self.encoding(rays_o + rays_d * t))
            alpha = torch.sigmoid(-out[:, :1])
            rgb = rgb + alpha * self.texture(out[:, 1:], rays_d)
            weight = weight + alpha
        return rgb / weight


def main():
    torch.manual_seed(66)
    dataset, model = CustomDataset(3), NeuSModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(3):
        rays, rgb = dataset.sample(64)
        loss = F.smooth_l1_loss(model(rays).float(), rgb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss_rgb", round(loss.item(), 4))


if __name__ == "__main__":
    main()
