"""The function mode of a dry run: moves between devices, and conversions from Python and NumPy, which torch decides
before anything is dispatched."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
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
    device, follows = kwargs.pop("device", None), kwargs.pop("requires_grad", False)
    made = func(*args, **kwargs)
    if device is not None and isinstance(made, Tensor):
        made = _move(made, device, None)
    if follows:
        _forget_values(made)
    return made.requires_grad_() if follows else made


def _new_tensor(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    kwargs.setdefault("dtype", tensor.dtype)
    kwargs.setdefault("device", devices.device_of(tensor))
    return _from_data(torch.tensor, args[1:], kwargs)


def _forget_values(tensor: Tensor) -> None:
    """Takes the values of a tensor away. What autograd follows must have none: torch checks that a gradient is stored
    where its tensor is."""
    if isinstance(tensor, Tensor) and not devices.without_numbers(tensor) and tensor.is_floating_point():
        with private.DisableTorchFunction(), torch.no_grad():
            tensor.data = devices.placed(devices.without_keys(tensor), cuda=devices.on_cuda(tensor))


def _requires_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.requires_grad_()`` and ``x.requires_grad = True``."""
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    if wanted and args[0].is_leaf:
        _forget_values(args[0])
    return func(*args, **kwargs)


def _factory(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.randn(..., requires_grad=True)``."""
    if not kwargs.pop("requires_grad", False):
        return func(*args, **kwargs)
    made = func(*args, **kwargs)
    _forget_values(made)
    return made.requires_grad_()


def parameter(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Parameter.__new__`` that takes the values of small tensors away."""

    @wraps(original)
    def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) is Tensor and data.is_floating_point() and not devices.without_numbers(data):
            with private.DisableTorchFunction(), torch.no_grad():
                data = devices.placed(devices.without_keys(data), cuda=devices.on_cuda(data))
        return original(cls, data, requires_grad)

    return __new__


_OF_TENSOR: Any = Tensor
_FACTORIES = (
    torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange,
    torch.linspace, torch.eye, torch.zeros_like, torch.ones_like, torch.full_like, torch.rand_like, torch.randn_like,
    torch.normal, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full,
)  # fmt: skip
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_FACTORIES, _factory),
    Tensor.requires_grad_: _requires_grad,
    _OF_TENSOR.requires_grad.__set__: _requires_grad,
    Tensor.to: _to,
    Tensor.cuda: _cuda,
    Tensor.cpu: _cpu,
    torch.tensor: _from_data,
    torch.as_tensor: _from_data,
    torch.asarray: _from_data,
    Tensor.new_tensor: _new_tensor,
}
