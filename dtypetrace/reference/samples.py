"""A sample of a tensor's elements: the same positions for every tensor of that size, in pairs of neighbours."""

from __future__ import annotations

from functools import lru_cache

import torch

_SEGMENTS = ("cpu", "cuda")
"""Devices on which torch sums segments."""
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


def owners(sizes: list[int], device: torch.device) -> torch.Tensor:
    """For samples of these sizes, one after the other: the number of the sample that each element is of."""
    counts = torch.tensor(sizes)
    return torch.repeat_interleave(torch.arange(len(sizes)), counts, output_size=sum(sizes)).to(
        device, non_blocking=True
    )


def summed(columns: list[torch.Tensor], sizes: list[int], device: torch.device) -> torch.Tensor:
    """Sums over each of the samples of these sizes: a row for each sample. columns: numbers of one dtype for each
    element of all samples, one after the other."""
    if device.type in _SEGMENTS:  # five times as fast
        lengths = torch.tensor(sizes).to(device, non_blocking=True)
        return torch.stack([torch.segment_reduce(c, "sum", lengths=lengths, unsafe=True) for c in columns], 1)
    stacked = torch.stack(columns, 1)
    table = torch.zeros(len(sizes), len(columns), dtype=stacked.dtype, device=device)
    return table.index_add_(0, owners(sizes, device), stacked)


@lru_cache(maxsize=4096)
def _places(count: int, size: int, device: torch.device) -> torch.Tensor:
    pairs = torch.arange(size // 2, device=device)
    # not a plain stride: a power of two would sample only a few columns of a matrix
    apart = pairs * 7919 % max(2 * count // size, 1)
    first = (pairs.double() * (2 * count / size)).long().add_(apart).clamp_(max=count - 2)
    return torch.stack([first, first + 1], 1).reshape(-1)
