"""torch's fused paths of attention modules in evaluation: taken as without a trace, and seen as one call.

Before it takes such a path, the module's forward asks ``torch.overrides.has_torch_function`` whether anything wants to
see its inner calls, and a function mode does. While one of these modules runs, the function leaves our own mode out.
It is replaced for that time only, and in compiled code not even then: Dynamo knows it by identity.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..tables.operators import names
from . import mode_stacks, private, threads
from .dispatch_mode import DispatchMode, WatchingFunctionMode
from .replaced import Replaced

MODULES = (nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention)
_OVERRIDES: Any = torch.overrides
_ASKED: Callable[[Iterable[Any]], bool] = _OVERRIDES.has_torch_function


def _without_ours(values: Iterable[Any]) -> bool:
    """``has_torch_function``, as if our function mode were off."""
    values = tuple(values)
    if not _ASKED(values):
        return False
    others = any(not isinstance(mode, WatchingFunctionMode) for mode in mode_stacks.functions.modes())
    kinds = (type(v) for v in values if hasattr(type(v), "__torch_function__"))
    watch = threads.here()
    if watch is not None and watch.recorder.predicts:
        watch.recorder.not_seen["torch's fused paths of attention modules: a dry run takes the plain ones"] = None
    return others or any(map(private.answers_torch_functions, kinds))


def begin() -> None:
    """A module with a fused path begins to run. Can be called twice."""
    if not _asks:
        _asks.append(Replaced(_OVERRIDES, "has_torch_function", _without_ours))


def end() -> None:
    """No such module runs any more, or the trace ends."""
    while _asks:
        _asks.pop().restore()


_asks: list[Replaced] = []


class Fused:
    """A fused function; ``operator`` is what it calls. Under autocast it is called with our dispatch mode off, because
    that mode keeps autocast from what the function computes inside; then the call is recorded here."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.operator = getattr(torch.ops.aten, function.__name__).default
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watch = threads.here()
        if watch is None:
            return self.function(*args, **kwargs)
        recorder = watch.recorder
        recorder.not_seen[f"inside {self.__name__}, torch's fused path: it is recorded as one call"] = None
        if not private.any_autocast_enabled():
            return self.function(*args, **kwargs)
        with mode_stacks.top_dispatch_mode_off(DispatchMode):
            out = self.function(*args, **kwargs)
        if not recorder.broken:
            try:
                with private.DisableTorchFunction():
                    recorder.saw(self.operator, args, kwargs, out, sys._getframe(1))
            except Exception:
                recorder.fail("a fused call")
        return out


FUNCTIONS = {
    function: Fused(function) for name in sorted(names("fused")) if (function := getattr(torch, name, None)) is not None
}
"""The functions that the modules call on their fused paths."""
