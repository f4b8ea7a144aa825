"""Checkpoints: of a large one only dtypes and shapes are read."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from . import devices
from .hub import header
from .prediction import tensors_in
from .pretend import Replace
from .values import NeedsValueError

_MOST_BYTES = 1 << 24
"""A checkpoint file up to this size is read with its values."""


def install(replace: Replace) -> None:
    """Replaces what reads and writes checkpoints."""
    written: dict[str, Any] = {}
    replace(torch, "load", _load(torch.load, written))
    replace(torch, "save", _save(torch.save, written))
    replace(torch._utils, "_rebuild_tensor", _rebuild(torch._utils._rebuild_tensor))
    named = torch._utils._rebuild_meta_tensor_no_storage  # as a checkpoint names it
    replace(torch._utils, "_rebuild_meta_tensor_no_storage", wraps(named)(_form))
    # it remembers the functions that a checkpoint may name, the replaced ones among them
    unpickler: Any = torch._weights_only_unpickler
    allowed = unpickler._get_allowed_globals
    replace(unpickler, "_get_allowed_globals", getattr(allowed, "__wrapped__", allowed))


def _load(original: Callable[..., Any], written: dict[str, Any]) -> Callable[..., Any]:
    @wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if (saved := written.get(_name(f))) is not None:
            return saved
        large = isinstance(f, (str, os.PathLike)) and os.path.exists(f) and os.path.getsize(f) > _MOST_BYTES
        return original(f, "meta" if large else "cpu", *args, **kwargs)

    return load


def _save(original: Callable[..., Any], written: dict[str, Any]) -> Callable[..., Any]:
    """Writes no file: a checkpoint without values would replace a real one. ``torch.load`` returns what was saved. Into
    memory, of a tensor without values its dtype and shape are written."""

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if name := _name(f):
            written[name] = obj
        elif isinstance(f, io.BytesIO) or not any(map(devices.without_numbers, tensors_in(obj))):
            with devices.meta_is_named():
                original(obj, f, *args, **kwargs)
        else:
            raise NeedsValueError("torch.save into an open file, of tensors without values")

    return save


def _name(file: Any) -> str:
    return os.path.abspath(file) if isinstance(file, (str, os.PathLike)) else ""


def safetensors(module: Any, replace: Replace) -> None:
    """The same for safetensors."""
    written: dict[str, Any] = {}
    read = module.load_file

    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        written[_name(filename)] = dict(tensors)

    def load_file(filename: Any, device: Any = "cpu", **kwargs: Any) -> Any:
        if (saved := written.get(_name(filename))) is not None:
            return saved
        if os.path.getsize(filename) > _MOST_BYTES:
            empty = {n: torch.empty(shape, dtype=d, device="meta") for n, (d, shape) in header(Path(filename)).items()}
            return {name: devices.placed(t, cuda=False).to(device) for name, t in empty.items()}
        return {name: tensor.to(device) for name, tensor in read(filename, **kwargs).items()}

    replace(module, "save_file", save_file)
    replace(module, "load_file", load_file)
    replace(module, "save", lambda tensors, metadata=None: b"")


def _rebuild(original: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor on a storage without values is on the CPU for the program."""

    @wraps(original)
    def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
        if storage._untyped_storage.device.type != "meta":
            return original(storage, storage_offset, size, stride)
        made = devices.placed(torch.empty((0,), dtype=storage.dtype, device="meta"), cuda=False)
        return made.set_(storage._untyped_storage, storage_offset, size, stride)

    return _rebuild_tensor


def _form(dtype: torch.dtype, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor of which only dtype and shape were written into memory; on the CPU, as all that is loaded."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda").cpu().requires_grad_(requires_grad)
