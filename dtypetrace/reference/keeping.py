"""Keeps modules in float32 inside a model that computes in a narrower dtype."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import nn

from ..capture.calls import HALVES


class WideModules:
    """The casts around the modules that are kept wide. ``remove()`` takes the casts out; the weights stay as they
    are."""

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        wanted = sorted(set(names), key=len)
        outermost = [n for n in wanted if not any(n != o and (not o or n.startswith(o + ".")) for o in wanted)]
        modules = dict(model.named_modules())
        self.modules = tuple(name for name in outermost if name in modules)
        self._handles: list[Any] = []
        for name in self.modules:
            _widen_weights(modules[name])
            island = _Island()
            self._handles += [
                modules[name].register_forward_pre_hook(island.enter, with_kwargs=True),
                modules[name].register_forward_hook(island.leave, always_call=True),
            ]

    def remove(self) -> None:
        """Takes the casts out again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def keep_wide(model: nn.Module, names: Iterable[str]) -> WideModules:
    """Casts the weights and inputs of some modules, given by their paths, to float32, and their results back.

    Autocast is off inside. A module inside another one that is kept needs no casts of its own.
    """
    return WideModules(model, names)


def _widen_weights(module: nn.Module) -> None:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype in HALVES:
            tensor.data = tensor.data.float()
            if tensor.grad is not None:
                tensor.grad.data = tensor.grad.data.float()


class _Island:
    """One module's calls: they may be nested, as in recursion."""

    def __init__(self) -> None:
        self._open: list[tuple[torch.dtype | None, list[Any]]] = []

    def enter(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Widens a call's arguments."""
        met: list[torch.dtype] = []
        wide_args, wide_kwargs = _cast(args, met), _cast(kwargs, met)
        regions = []
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                region = torch.autocast(device, enabled=False)
                region.__enter__()
                regions.append(region)
        self._open.append((met[0] if met else None, regions))
        return wide_args, wide_kwargs

    def leave(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> Any:
        """Narrows a call's results to the dtype of its arguments."""
        dtype, regions = self._open.pop()
        for region in reversed(regions):
            region.__exit__(None, None, None)
        return None if dtype is None or result is None else _recast(result, (torch.float32,), dtype)


def _cast(value: Any, met: list[torch.dtype]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype not in HALVES:
            return value
        met.append(value.dtype)
        return value.float()
    if type(value) in (list, tuple):
        return type(value)(_cast(v, met) for v in value)
    if type(value) is dict:
        return {k: _cast(v, met) for k, v in value.items()}
    return value


def _recast(value: Any, found: Collection[torch.dtype], dtype: torch.dtype) -> Any:
    """A call's results with tensors of some dtypes cast to another one."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.dtype in found else value
    if type(value) in (list, tuple):
        return type(value)(_recast(v, found, dtype) for v in value)
    if isinstance(value, dict):
        for k, v in value.items():
            value[k] = _recast(v, found, dtype)
    return value
