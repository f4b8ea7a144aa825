"""A sample of a tensor's elements: the same positions for every tensor of that size, in pairs of neighbours."""

from __future__ import annotations

from functools import lru_cache

import torch

SIZE = 1024
"""The largest number of elements in a sample."""


def sample(tensor: torch.Tensor, size: int = SIZE) -> torch.Tensor:
    """Up to ``size`` elements, in pairs of neighbours that are evenly spread, in one dimension; a small tensor is
    returned whole, perhaps as a view."""
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        tensor = tensor.float()  # torch can do little with 8-bit floats
    count = tensor.numel()
    if count <= size:
        return tensor.reshape(-1)
    return torch.take(tensor, _places(count, size, tensor.device))


def own_sample(tensor: torch.Tensor) -> torch.Tensor:
    """A sample that shares no memory with the tensor; complex numbers as pairs."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    taken = sample(tensor.resolve_neg())
    return taken.clone() if taken.untyped_storage()._cdata == tensor.untyped_storage()._cdata else taken


@lru_cache(maxsize=4096)
def _places(count: int, size: int, device: torch.device) -> torch.Tensor:
    pairs = torch.arange(size // 2, device=device)
    # not a plain stride: a power of two would sample only a few columns of a matrix
    apart = pairs * 7919 % max(2 * count // size, 1)
    first = (pairs.double() * (2 * count / size)).long().add_(apart).clamp_(max=count - 2)
    return torch.stack([first, first + 1], 1).reshape(-1)
