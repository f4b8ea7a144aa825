"""The private torch that a dry run needs, in one place: dispatch keys, and kernels registered over torch's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..tables.operators import tagged

_keys_of = torch._C._dispatch_keys
_CUDA_KEY, _CPU_KEY = torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CPU
_AUTOCAST = {
    "cpu": torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU),
    "cuda": torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA),
}


def has_cuda_key(tensor: torch.Tensor) -> bool:
    """Whether a tensor is dispatched to CUDA's kernels."""
    return bool(_keys_of(tensor).has(_CUDA_KEY))


def has_cpu_key(tensor: torch.Tensor) -> bool:
    """Whether a tensor is dispatched to the CPU's kernels."""
    return bool(_keys_of(tensor).has(_CPU_KEY))


def with_keys_of(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """An alias of a tensor's storage that is dispatched as on a device, outside autograd."""
    made: torch.Tensor = torch.Tensor._make_subclass(torch.Tensor, tensor, False, device_for_backend_keys=device)
    return made


@contextmanager
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
