"""An optimizer's steps on a copy of a few numbers: the optimizer itself, its state and its hooks are left alone."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..records import Rehearsed
from . import private
from .calls import dtype_name
from .held_signals import held

Tensor = torch.Tensor
STEPS = 4
"""Enough for an optimizer's running averages to begin to settle."""


class Rehearsal:
    """A copy of an optimizer without state, for one parameter. ``group``: the settings that it gets."""

    def __init__(self, optimizer: Any, group: dict[str, Any], values: Tensor) -> None:
        self.parameter = nn.Parameter(values)
        self.optimizer = copy.copy(optimizer)
        self.optimizer.state = defaultdict(dict)
        self.optimizer.param_groups = [{**settings(group), "params": [self.parameter]}]
        self._step = getattr(type(optimizer).step, "__wrapped__", type(optimizer).step)  # without any hooks

    def step(self, gradient: Tensor) -> None:
        """One step with a gradient, in the parameter's dtype. Raises what the optimizer's own code raises."""
        self.parameter.grad = gradient.to(self.parameter.device, self.parameter.dtype)
        self._step(self.optimizer)


def settings(group: dict[str, Any]) -> dict[str, Any]:
    """A copy of a parameter group without its parameters."""
    return {k: v.clone() if isinstance(v, Tensor) else copy.copy(v) for k, v in group.items() if k != "params"}


class Bare:
    """What is needed of an optimizer to copy it after it is gone: neither its parameters nor their state."""

    def __init__(self, optimizer: Any) -> None:
        self._kind: Any = type(optimizer)
        self._defaults = copy.copy(getattr(optimizer, "defaults", {}))

    def made(self) -> Any:
        """Such an optimizer without groups. Raises what the optimizer's own code raises, and where it is copied in a
        way of its own."""
        if self._kind.__getstate__ is not torch.optim.Optimizer.__getstate__:
            raise TypeError(f"{self._kind.__name__} has its own way of being copied")
        made = self._kind.__new__(self._kind)
        made.__setstate__({"defaults": self._defaults, "state": defaultdict(dict), "param_groups": []})
        return made


@dataclass(frozen=True)
class Kept:
    """A few numbers of a parameter before one of its steps, and of their gradient."""

    optimizer: Bare
    name: str
    group: dict[str, Any]
    before: Tensor
    gradient: Tensor


def rehearsed(kept: Iterable[Kept]) -> tuple[Rehearsed, ...]:
    """What the same steps do to the same numbers in their own dtype and in float32, compared with float64; parameters
    whose optimizer does not step such a copy are left out."""
    with private.DisableTorchFunction(), private.DisableTorchDispatch():
        found = [_rehearsed(one) for one in kept]
    return tuple(one for one in found if one is not None)


def _rehearsed(kept: Kept) -> Rehearsed | None:
    dtypes = kept.before.dtype, torch.float32, torch.float64
    with held(), torch.enable_grad(), torch.random.fork_rng(devices=[]):  # an interrupt would leave them as they are
        try:
            narrow, wide, true = (_changed(kept, dtype) for dtype in dtypes)
        except Exception:  # the optimizer's own code may fail on such a copy
            return None
    size = float(true.square().sum())
    if not size:
        return None
    before, after = (_error(change, true, size) for change in (narrow, wide))
    return Rehearsed(kept.name, dtype_name(kept.before.dtype), STEPS, before, after)


def _changed(kept: Kept, dtype: torch.dtype) -> Tensor:
    values = kept.before.to(dtype, copy=True)
    old = values.to(torch.float64, copy=True)
    twin = Rehearsal(kept.optimizer.made(), kept.group, values)
    for _ in range(STEPS):
        twin.step(kept.gradient)
    return twin.parameter.detach().double() - old


_SPOILED = 1e6
"""The error of a change that is infinite or NaN."""


def _error(change: Tensor, true: Tensor, size: float) -> float:
    apart = float((change - true).square().sum())
    return (apart / size) ** 0.5 if torch.isfinite(change).all() else _SPOILED
