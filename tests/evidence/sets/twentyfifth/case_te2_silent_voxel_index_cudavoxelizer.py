"""
title: at 2048^3 the voxel table wraps around and parts of the model land elsewhere
expect: silent:integer-overflow|overflow
thread: https://github.com/Forceflow/cuda_voxelizer/issues/10
measured: grid 1024: voxels right 1.000 highest z 1023 materials 100 / grid 2048: voxels right 0.251 highest z 511 materials 100
widened: grid 1024: voxels right 1.000 highest z 1023 materials 100 / grid 2048: voxels right 1.000 highest z 2047 materials 100; innocent: grid 1024: voxels right 1.000 highest z 1023 materials 100 / grid 2048: voxels right 0.251 highest z 511 materials 100
suspect: 56 exact (there are 100 materials)

Expectation, written first: the linear index x + y*g + z*g*g is built from int32 coordinates; at grid size 2048 it needs
33 bits and wraps for z >= 512, so decoding gives other cells. At 1024 all is well. Remedy: int64 before the products.
The materials in int8 stay below 127.
"""
import torch


class VoxInfo:
    def __init__(self, points, gridsize):
        self.gridsize = gridsize
        self.bbox_min = points.min(dim=0).values
        self.unit = (points.max(dim=0).values - self.bbox_min).max() * 1.0001 / gridsize


def to_grid(points, info):
    return ((points - info.bbox_min) / info.unit).floor().to(torch.int32)  # BORN


def linear_index(cells, gridsize):
    x, y, z = cells.unbind(dim=1)
    return x + y * gridsize + z * (gridsize * gridsize)  # BORN


def decode(index, gridsize):
    x = index % gridsize
    y = index // gridsize % gridsize
    z = index // (gridsize * gridsize)
    return torch.stack([x, y, z], dim=1)


def voxelize(points, materials, gridsize):
    info = VoxInfo(points, gridsize)
    cells = to_grid(points, info)  # BORN
    table, inverse = torch.unique(linear_index(cells, gridsize), return_inverse=True)  # BORN
    voxel_material = torch.zeros(len(table), dtype=torch.long)
    voxel_material[inverse] = materials.long()
    return cells, table, inverse, voxel_material


def sample_sphere(n, generator):
    v = torch.randn(n, 3, generator=generator)
    return v / v.norm(dim=1, keepdim=True)


def main():
    generator = torch.Generator().manual_seed(10)
    points = sample_sphere(20000, generator)
    materials = ((points[:, 2] + 1) * 49.9).to(torch.int8)
    for gridsize in (1024, 2048):
        cells, table, inverse, voxel_material = voxelize(points, materials, gridsize)
        back = decode(table, gridsize)[inverse]
        right = (back == cells).all(dim=1).float().mean().item()
        print(f"grid {gridsize}: voxels right {right:.3f} highest z {back[:, 2].max().item()} materials {voxel_material.unique().numel()}")


main()
