"""The function mode of a dry run: moves between devices, and conversions from Python and NumPy, which torch decides
before anything is dispatched."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ..capture import private
from . import devices

Tensor = torch.Tensor


class DryFunctions(private.TorchFunctionMode):
    """Passes torch functions on, with the devices that tensors pretend to be on."""

    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        handler = _HANDLERS.get(func)
        if handler is None or os.getpid() != self.process:
            return func(*args, **(kwargs or {}))
        return handler(func, args, kwargs or {})


def _move(tensor: Tensor, device: Any, dtype: torch.dtype | None, **more: Any) -> Tensor:
    """``tensor.to(device, dtype)``."""
    here, there = devices.device_of(tensor), _target(device)
    if there is None or here.type == there.type:
        return tensor.to(dtype, **more) if dtype is not None or more.get("copy") else tensor
    if not devices.on_cuda(tensor) and not devices.on_cpu(tensor):
        there = devices.PRETENDED if there.type == "cuda" else torch.device("cpu")
    options = {"dtype": dtype or tensor.dtype, "device": torch.device(there.type)}
    if more.get("memory_format") is not None:
        options["memory_format"] = more["memory_format"]
    made: Tensor = torch.ops.aten._to_copy.default(tensor, **options)
    return made


def _target(device: Any) -> torch.device | None:
    if device is None:
        return None
    return devices.PRETENDED if devices.is_cuda(device) else torch.device(device)


def _to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Every form of ``x.to(...)``: with a device, a dtype, both, or another tensor."""
    tensor, *rest = args
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    more = {k: v for k, v in kwargs.items() if k in ("copy", "non_blocking", "memory_format")}
    if rest and isinstance(rest[0], Tensor) or isinstance(kwargs.get("other"), Tensor):
        other = rest.pop(0) if rest and isinstance(rest[0], Tensor) else kwargs["other"]
        device, dtype = devices.device_of(other), other.dtype
    elif rest and not isinstance(rest[0], torch.dtype):
        device = rest.pop(0)
    if rest and isinstance(rest[0], torch.dtype):
        dtype = rest.pop(0)
    more |= dict(zip(("non_blocking", "copy"), rest))
    return _move(tensor, device, dtype, **more)


def _cuda(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _move(args[0], "cuda", None)


def _cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _move(args[0], "cpu", None)


def _from_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.tensor(data, device="cuda")``: made on the CPU, then moved."""
    device = kwargs.pop("device", None)
    made = func(*args, **kwargs)
    if device is None or not isinstance(made, Tensor):
        return made
    return _move(made, device, None).detach().requires_grad_(made.requires_grad)


def _new_tensor(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    kwargs.setdefault("dtype", tensor.dtype)
    kwargs.setdefault("device", devices.device_of(tensor))
    return _from_data(torch.tensor, args[1:], kwargs)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    Tensor.to: _to,
    Tensor.cuda: _cuda,
    Tensor.cpu: _cpu,
    torch.tensor: _from_data,
    torch.as_tensor: _from_data,
    torch.asarray: _from_data,
    Tensor.new_tensor: _new_tensor,
}
