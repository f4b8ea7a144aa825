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
from ..tables.operators import tagged

Tensor = torch.Tensor
META = torch.device("meta")
_CPU, _CUDA = torch.device("cpu"), torch.device("cuda")
PRETENDED = torch.device("cuda", 0)
"""The device that tensors with CUDA's keys report."""
_keys_of = torch._C._dispatch_keys
_CUDA_KEY, _CPU_KEY = torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CPU
_AUTOCAST = {
    "cpu": torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU),
    "cuda": torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA),
}
_OF_TENSOR: Any = Tensor
_storage_device, _stored_on_meta = _OF_TENSOR.device.__get__, _OF_TENSOR.is_meta.__get__


def without_numbers(tensor: Tensor) -> bool:
    """Whether a tensor has no values: its storage is on the meta device."""
    with private.DisableTorchFunction():
        return bool(_stored_on_meta(tensor))


def on_cuda(tensor: Tensor) -> bool:
    """Whether a tensor pretends to be on a CUDA device."""
    return bool(_keys_of(tensor).has(_CUDA_KEY))


def on_cpu(tensor: Tensor) -> bool:
    """Whether a tensor is on the CPU, or pretends to be."""
    return bool(_keys_of(tensor).has(_CPU_KEY))


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
    return with_keys_of(tensor, _CUDA if cuda else _CPU)


def without_keys(tensor: Tensor) -> Tensor:
    """For meta kernels: a tensor on the meta device of the same form. It shares the storage of one without values."""
    if without_numbers(tensor):
        return with_keys_of(tensor, META)
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


# ---------------------------------------------------------------- private torch: dispatch keys and registered kernels


def with_keys_of(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """An alias of a tensor's storage that is dispatched as on a device, outside autograd."""
    made: torch.Tensor = torch.Tensor._make_subclass(torch.Tensor, tensor, False, device_for_backend_keys=device)
    return made


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """A block in which operators run their meta kernels, whatever keys their operands have."""
    with torch._C._DisableTorchDispatch(), torch._C._PreserveDispatchKeyGuard():
        torch._C._set_meta_in_tls_dispatch_include(True)
        yield


def changes_form(func: Any) -> bool:
    """Whether an operator changes the form of its operand in place (``t_``, ``resize_``)."""
    return torch.Tag.inplace_view in func.tags or tagged(func.overloadpacket.__name__, "resizes")


def autocast_off(device: str) -> Any:
    """A block in which autocast's kernels for a device are skipped."""
    return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST[device])


def registered(key: str) -> list[str]:
    """The operators that have a kernel for a dispatch key, by full name."""
    names: list[str] = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return [name for name in names if name.startswith("aten::")]


def is_composite(func: Any) -> bool:
    """Whether an operator is made of others and has no kernel of its own."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))
