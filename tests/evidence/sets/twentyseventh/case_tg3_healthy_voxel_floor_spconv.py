"""
title: Dynamic voxelization floors the coordinates to int32
expect: clean
thread: https://github.com/traveller59/spconv/issues/551
measured: voxels 3671 points kept 4339 most in a voxel 5 / bev (2, 8, 80, 80) mean height -1.01
suspect: 26 (the fraction of a coordinate is meant to be dropped)

Expectation, written first: A voxel's index is the floor of the scaled coordinate; the decimals say where in the
voxel a point lies and are dropped on purpose. The points keep their float32 coordinates for the features.
The flat key stays far below 2**31, and the division by counts is done in float32.
"""
import torch
import torch.nn as nn


class DynamicVoxelEncoder:
    def __init__(self, voxel_size, point_cloud_range):
        self.voxel_size = torch.tensor(voxel_size)
        self.point_cloud_range = torch.tensor(point_cloud_range)
        self.grid_size = ((self.point_cloud_range[3:] - self.point_cloud_range[:3]) / self.voxel_size).round().int()
        self.scale_xyz = int(self.grid_size.prod())
        self.scale_yz = int(self.grid_size[1] * self.grid_size[2])
        self.scale_z = int(self.grid_size[2])

    def __call__(self, batch_points):
        points_coords = torch.floor((batch_points[:, 1:4] - self.point_cloud_range[:3]) / self.voxel_size).int()
        mask = ((points_coords >= 0) & (points_coords < self.grid_size)).all(dim=1)
        points, points_coords = batch_points[mask], points_coords[mask]
        merge = points[:, 0].int() * self.scale_xyz + points_coords[:, 0] * self.scale_yz
        merge = merge + points_coords[:, 1] * self.scale_z + points_coords[:, 2]
        keys, inverse, counts = torch.unique(merge, return_inverse=True, return_counts=True)
        total = torch.zeros(len(keys), points.shape[1] - 1).index_add_(0, inverse, points[:, 1:])
        features = total / counts[:, None]
        coords = torch.stack([keys // self.scale_xyz, keys % self.scale_xyz // self.scale_yz,
                              keys % self.scale_yz // self.scale_z, keys % self.scale_z], dim=1)
        return features, coords.int(), counts


class BEVScatter(nn.Module):
    def __init__(self, in_channels, out_channels, grid_size):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)
        self.nx, self.ny = int(grid_size[0]), int(grid_size[1])
        self.conv = nn.Conv2d(out_channels, out_channels, 3, padding=1)

    def forward(self, features, coords, batch_size):
        x = torch.relu(self.linear(features))
        canvas = torch.zeros(batch_size * self.nx * self.ny, x.shape[1])
        index = (coords[:, 0] * self.nx + coords[:, 1]) * self.ny + coords[:, 2]
        canvas.index_add_(0, index.long(), x)
        return self.conv(canvas.view(batch_size, self.nx, self.ny, -1).permute(0, 3, 1, 2))


def make_scene(batch_size, num_points, generator):
    clouds = []
    for b in range(batch_size):
        xyz = torch.rand(num_points, 3, generator=generator) * torch.tensor([42.0, 42.0, 5.0])
        xyz = xyz - torch.tensor([21.0, 21.0, 3.5])
        intensity = torch.rand(num_points, 1, generator=generator)
        clouds.append(torch.cat([torch.full((num_points, 1), float(b)), xyz, intensity], dim=1))
    return torch.cat(clouds)


@torch.no_grad()
def main():
    generator = torch.Generator().manual_seed(551)
    torch.manual_seed(551)
    encoder = DynamicVoxelEncoder([0.5, 0.5, 4.0], [-20.0, -20.0, -3.0, 20.0, 20.0, 1.0])
    points = make_scene(batch_size=2, num_points=3000, generator=generator)
    features, coords, counts = encoder(points)
    print("voxels", len(features), "points kept", int(counts.sum()), "most in a voxel", int(counts.max()))
    bev = BEVScatter(4, 8, encoder.grid_size)(features, coords, batch_size=2)
    print("bev", tuple(bev.shape), "mean height", round(features[:, 2].mean().item(), 2))


if __name__ == "__main__":
    main()
