"""Tensors that pretend to be on a device: their storage is on the CPU or on the meta device, their dispatch keys are
those of the device that the program asked for.

torch chooses autocast and autograd by dispatch keys, so both act as on that device, although no such device is there.
Tensors keep torch's own classes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch

from ..capture import private
from . import keys

Tensor = torch.Tensor
META = torch.device("meta")
_CPU, _CUDA = torch.device("cpu"), torch.device("cuda")
PRETENDED = torch.device("cuda", 0)
"""The device that tensors with CUDA's keys report."""
_OF_TENSOR: Any = Tensor
_storage_device, _stored_on_meta = _OF_TENSOR.device.__get__, _OF_TENSOR.is_meta.__get__


def without_numbers(tensor: Tensor) -> bool:
    """Whether a tensor has no values: its storage is on the meta device."""
    with private.DisableTorchFunction():
        return bool(_stored_on_meta(tensor))


def on_cuda(tensor: Tensor) -> bool:
    """Whether a tensor pretends to be on a CUDA device."""
    return keys.has_cuda_key(tensor)


def on_cpu(tensor: Tensor) -> bool:
    """Whether a tensor is on the CPU, or pretends to be."""
    return keys.has_cpu_key(tensor)


_naming_meta: ContextVar[bool] = ContextVar("naming meta", default=False)


@contextlib.contextmanager
def meta_is_named() -> Iterator[None]:
    """In this block, a tensor without values says that it is on the meta device."""
    token = _naming_meta.set(True)
    try:
        yield
    finally:
        _naming_meta.reset(token)


def device_of(tensor: Tensor) -> torch.device:
    """The device that a tensor is on as far as the program can see."""
    if _naming_meta.get() and without_numbers(tensor):
        return META
    if on_cuda(tensor):
        return PRETENDED
    with private.DisableTorchFunction():
        stored: torch.device = _storage_device(tensor)
    return _CPU if stored.type == "meta" and on_cpu(tensor) else stored


def placed(tensor: Tensor, *, cuda: bool) -> Tensor:
    """The same storage under the keys of a device. Not followed by autograd."""
    return keys.with_keys_of(tensor, _CUDA if cuda else _CPU)


def without_keys(tensor: Tensor) -> Tensor:
    """For meta kernels: a tensor on the meta device of the same form. It shares the storage of one without values."""
    if without_numbers(tensor):
        return keys.with_keys_of(tensor, META)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def is_cuda(device: Any) -> bool:
    """Whether a device, as an argument may name it (``"cuda:1"``, 0, a device), is a CUDA device."""
    if isinstance(device, bool) or device is None:
        return False
    if isinstance(device, int):
        return True
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    return kind == "cuda"


def is_meta(device: Any) -> bool:
    """Whether a device, as an argument may name it, is the meta device."""
    return device is not None and not isinstance(device, (int, bool)) and str(device).partition(":")[0] == "meta"
