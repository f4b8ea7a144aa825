"""Operators made of others, run as they run without a dispatch mode.

While a mode runs a call, torch leaves out what stands above modes: autocast, and what resolves lazy conjugates and
negatives. A kernel that calls other operators would find neither: ``einsum`` in inference mode would multiply in
float32 under autocast, and ``pinv`` of complex numbers would read a conjugate as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from . import private
from .calls import tensors_in
from .running import AUTOCAST, Thread

_MADE_OF_OTHERS = (
    "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional",
)  # fmt: skip
_AUTOCAST = {
    "cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU", "mps": "AutocastMPS", "hpu": "AutocastHPU",
}  # fmt: skip
"""By device: the key at which operators that autocast itself knows are registered. It is off inside of these."""
_LAZY = "Conjugate", "Negative"


def autocasting() -> tuple[str, ...]:
    """The devices for which autocast is on."""
    return tuple(filter(torch.is_autocast_enabled, _devices()))


@cache
def _devices() -> tuple[str, ...]:
    accelerator = private.accelerator()
    # a dry run computes as on a CUDA device where there is none
    return ("cpu", accelerator.type) if accelerator is not None else ("cpu", "cuda")


def reached(func: Any) -> frozenset[str] | None:
    """The devices whose autocast reaches the inside of an operator; None if its kernel calls no other operators."""
    if not isinstance(func, private.OpOverload) or func.is_view:
        return None
    name = func.name()
    if not private.has_kernels(name) or not any(private.has_kernel(name, key) for key in _MADE_OF_OTHERS):
        return None
    return frozenset(device for device, key in _AUTOCAST.items() if not private.has_kernel(name, key))


def as_outside(
    kernel: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    thread: Thread,
    inside: frozenset[str],
) -> Callable[..., Any]:
    """The kernel of an operator made of others, as it runs outside of modes; itself where that makes no difference."""
    on = thread.calls[-1][AUTOCAST] if thread.calls else thread.modules[-1].autocast if thread.modules else ()
    devices = inside.intersection(on) if on else ()
    lazy = any(t.dtype.is_complex for t in tensors_in(args, kwargs))
    if not devices and not lazy:
        return kernel

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            for device in devices:
                torch.set_autocast_enabled(device, True)
            for key in _LAZY if lazy else ():
                private.exclude_key(key, False)
            return kernel(*args, **kwargs)
        finally:
            for key in _LAZY if lazy else ():
                private.exclude_key(key, True)
            for device in devices:
                torch.set_autocast_enabled(device, False)

    return run
