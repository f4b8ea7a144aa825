"""Autocast for tensors without values: torch's own kernels cast only tensors that really are on their device.

The kernels here take the place of torch's for the dispatch keys of autocast, above autograd, with the policies of
``tables/autocast.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..tables import autocast
from ..tables.operators import tagged
from ..terminal import unwarned
from . import devices

Tensor = torch.Tensor
_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


class Autocast:
    """The kernels, and the casts of weights that a region has made."""

    def __init__(self) -> None:
        self._library: Any = None
        self._cache: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        """A weight's id and the dtype -> the weight, which is kept so that its id stays its own, and its cast."""

    def install(self) -> None:
        """Registers the kernels for this process."""
        self._library = torch.library.Library("aten", "IMPL")
        with unwarned():  # torch warns of the first kernel that is overridden, as is meant here
            self._register()

    def _register(self) -> None:
        for device, key in _KEYS.items():
            for name in devices.registered(key):
                base, _, overload = name.removeprefix("aten::").partition(".")
                if base not in autocast.refused(device):
                    operator = getattr(getattr(torch.ops.aten, base), overload or "default")
                    self._library.impl(name, self._kernel(operator, base, device), key, allow_override=True)

    def remove(self) -> None:
        """Gives torch's own kernels back."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
        self.forget()

    def forget(self) -> None:
        """The outermost region ends."""
        self._cache.clear()

    def _kernel(self, operator: Any, base: str, device: str) -> Callable[..., Any]:
        policy = autocast.policy(base, base, device)
        named = device == "cuda" and tagged(base, "cuda:dtype")
        takes_dtype = any(a.name == "dtype" for a in operator._schema.arguments)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with devices.autocast_off(device):
                if named and takes_dtype:
                    if isinstance(args[0], Tensor) and _eligible(args[0], device) and kwargs.get("dtype") is None:
                        position = [a.name for a in operator._schema.arguments].index("dtype")
                        if position >= len(args):
                            kwargs["dtype"] = torch.float32
                        elif args[position] is None:
                            args = (*args[:position], torch.float32, *args[position + 1 :])
                    return operator(*args, **kwargs)
                to = self._dtype(policy, device, (*args, *kwargs.values()))
                if to is not None:
                    args = tuple(self._cast(a, to, device) for a in args)
                    kwargs = {k: self._cast(v, to, device) for k, v in kwargs.items()}
                return operator(*args, **kwargs)

        return kernel

    def _dtype(self, policy: autocast.Policy, device: str, values: tuple[Any, ...]) -> torch.dtype | None:
        """The dtype that the operands are cast to."""
        if policy == "lower":
            return torch.get_autocast_dtype(device)
        if policy == "float32":
            return torch.float32
        dtypes = {t.dtype for v in values for t in _listed(v) if _eligible(t, device)}
        return torch.float32 if torch.float32 in dtypes or len(dtypes) > 1 else None

    def _cast(self, value: Any, to: torch.dtype, device: str) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(v, to, device) for v in value)
        if not isinstance(value, Tensor) or not _eligible(value, device) or value.dtype is to:
            return value
        cached = to is torch.get_autocast_dtype(device) and value.dtype is torch.float32 and value.requires_grad
        if not (cached and value.is_leaf and value._base is None and torch.is_autocast_cache_enabled()):
            return value.to(to)
        key = id(value), to
        if key not in self._cache:
            with torch.enable_grad():
                self._cache[key] = value, value.to(to)
        return self._cache[key][1]


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _eligible(value: Any, device: str) -> bool:
    """Whether autocast casts a value on this device."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype is torch.float64:
        return False
    return devices.on_cuda(value) if device == "cuda" else devices.on_cpu(value)
