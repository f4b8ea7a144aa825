"""
title: strided sparse pooling of double features: index put into a default-dtype buffer
expect: collision
thread: https://github.com/NVlabs/WarpConvNet/pull/17
fix_at: none

Expectation, written first: sparse_reduce allocates the output features with torch.zeros and no dtype, so they
are float32, while the pooled features follow the double model. Writing them with index put raises "Index put
requires the source and destination dtypes match". The allocation has to take the dtype of the features.
"""
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Voxels:
    batched_coordinates: Tensor
    batched_features: Tensor

    @property
    def dtype(self):
        return self.batched_features.dtype

    def replace(self, **kwargs):
        return Voxels(**{**self.__dict__, **kwargs})


def ravel(coords: Tensor, extent: int) -> Tensor:
    weights = torch.tensor([extent**3, extent**2, extent, 1], dtype=coords.dtype)
    return (coords * weights).sum(-1)


def stride_coords(coords: Tensor, stride: int) -> Tensor:
    out = coords.clone()
    out[:, 1:] = torch.div(out[:, 1:], stride, rounding_mode="floor")
    return torch.unique(out, dim=0)


def sparse_reduce(voxels: Voxels, stride: int = 2, reduction: str = "amax", extent: int = 64) -> Voxels:
    coords, features = voxels.batched_coordinates, voxels.batched_features
    out_coords = stride_coords(coords, stride)
    parents = coords.clone()
    parents[:, 1:] = torch.div(parents[:, 1:], stride, rounding_mode="floor")
    out_maps = torch.searchsorted(ravel(out_coords, extent), ravel(parents, extent))
    unique_out_maps, inverse = torch.unique(out_maps, return_inverse=True)
    num_channels = features.shape[1]

    index = inverse[:, None].expand(-1, num_channels)
    out_features = features.new_zeros(len(unique_out_maps), num_channels).scatter_reduce(
        0, index, features, reduce=reduction, include_self=False
    )
    new_out_features = torch.zeros(len(out_coords), num_channels, device=features.device)  # BORN
    new_out_features[unique_out_maps] = out_features  # COLLIDES
    return voxels.replace(batched_coordinates=out_coords, batched_features=new_out_features)


class PoolHead(nn.Module):
    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        self.stem = nn.Linear(channels, channels)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, voxels: Voxels) -> Tensor:
        x = voxels.replace(batched_features=torch.relu(self.stem(voxels.batched_features)))
        x = sparse_reduce(x, stride=2)
        return self.head(x.batched_features)


if __name__ == "__main__":
    torch.manual_seed(0)
    coords = torch.cat([torch.zeros(60, 1, dtype=torch.long), torch.randint(0, 8, (60, 3))], 1)
    coords = torch.unique(coords, dim=0)
    voxels = Voxels(coords, torch.randn(len(coords), 6, dtype=torch.float64))
    model = PoolHead(6, 4).double()
    logits = model(voxels)
    print("pooled", tuple(logits.shape), f"{logits.mean().item():.6f}")
