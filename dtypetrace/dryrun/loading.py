"""Checkpoints: of a large one only dtypes and shapes are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from . import devices
from .pretend import Replace

_MOST_BYTES = 1 << 24
"""A checkpoint file up to this size is read with its values."""


def install(replace: Replace) -> None:
    """Replaces what reads checkpoints."""
    replace(torch, "load", _load(torch.load))
    replace(torch._utils, "_rebuild_tensor", _rebuild(torch._utils._rebuild_tensor))


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        large = isinstance(f, (str, os.PathLike)) and os.path.exists(f) and os.path.getsize(f) > _MOST_BYTES
        return original(f, "meta" if large else "cpu", *args, **kwargs)

    return load


def _rebuild(original: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor on a storage without values is on the CPU for the program."""

    @wraps(original)
    def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
        if storage._untyped_storage.device.type != "meta":
            return original(storage, storage_offset, size, stride)
        made = devices.placed(torch.empty((0,), dtype=storage.dtype, device="meta"), cuda=False)
        return made.set_(storage._untyped_storage, storage_offset, size, stride)

    return _rebuild_tensor
