"""Compares what accumulates over steps with its reference: gradients as the optimizer gets them, updates, its state.

It compares samples; but whether a gradient is zero is checked on all of it. The sums stay on the device and are read at
the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..capture.totals import Totals, ratio
from ..records import Compared
from .calls import plain
from .errors import Row, Sums
from .samples import sample
from .shadows import Shadows

Tensor = torch.Tensor
_LEAST_SAMPLE, _MOST_SAMPLE, _OF_EACH = 1 << 12, 1 << 15, 32
"""Elements of a gradient that are compared: one of so many, because those of an embedding are in a few rows, but at
least and at most so many."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One parameter's gradients, updates or state."""

    name: str
    what: str
    dtype: str
    shape: tuple[int, ...]
    place: int
    event: int
    op: int


class Comparisons:
    """Compares the steps of every optimizer. names: of the parameters, by id. made: returns the numbers of the event
    that decided a tensor's dtype and of the op that made it."""

    def __init__(
        self, shadows: Shadows, names: Callable[[], dict[int, str]], made: Callable[[Tensor], tuple[int, int]]
    ) -> None:
        self._shadows = shadows
        self._names = names
        self._made = made
        self._sums = Sums[_Part]()
        self._steps = Totals[_Part]("steps", "zero")
        """Those in which the reference is not zero, and those of them in which all of the program's is."""
        self._known: dict[tuple[int, str], _Part] = {}
        self._named: dict[int, str] = {}
        self._before: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._place = -1

    def forget(self) -> None:
        """Drops every tensor of the program's."""
        self._before = []

    def begins(self, optimizer: Any, place: int) -> None:
        """Before a step."""
        self._place = place
        self._before = []
        for parameter in _parameters(optimizer):
            gradient = parameter.grad
            held = self._shadows.of(parameter.detach())
            self._before.append(
                (parameter, sample(parameter.detach()).clone(), sample(held).clone() if held is not None else None)
            )
            if gradient is not None and plain(gradient):
                reference = self._shadows.of(gradient)
                if reference is not None:
                    size = min(max(gradient.numel() // _OF_EACH, _LEAST_SAMPLE), _MOST_SAMPLE)
                    part = self._part(parameter, "gradient", gradient)
                    self._add(part, sample(gradient, size), sample(reference, size), gradient)
        self._sums.fold()

    def ends(self, optimizer: Any) -> None:
        """After it."""
        before, self._before = self._before, []
        state = getattr(optimizer, "state", {})
        for parameter, old, held_before in before:
            reference = self._shadows.of(parameter.detach())
            new = sample(parameter.detach())
            if new.shape == old.shape:
                old_wide = old.to(self._shadows.wide_of(parameter.dtype))
                was = held_before if held_before is not None else old_wide
                due = sample(reference) - was if reference is not None else torch.zeros_like(was)
                self._add(self._part(parameter, "update", parameter), new.to(old_wide.dtype) - old_wide, due)
            held = state.get(parameter) if hasattr(state, "get") else None
            for name, value in held.items() if isinstance(held, dict) else ():
                self._held(parameter, str(name), value)
        self._sums.fold()

    def _held(self, parameter: Tensor, name: str, value: Any) -> None:
        if not isinstance(value, Tensor) or not plain(value) or not value.dim() or not value.dtype.is_floating_point:
            return
        reference = self._shadows.of(value)
        if reference is not None:
            self._add(self._part(parameter, name, value), sample(value), sample(reference))

    def _add(self, part: _Part, made: Tensor, true: Tensor, whole: Tensor | None = None) -> None:
        """Compares samples of one step; whole: what ``made`` is a sample of, where that is less than all of it."""
        made = made.detach()
        self._sums.add(Row(part, made, true, true, torch.zeros_like(true), math.inf))
        alive = (torch.isfinite(true) & (true != 0)).any()
        self._steps.add(part, alive, alive & ((made if whole is None else whole) == 0).all())

    def _part(self, parameter: Tensor, what: str, like: Tensor) -> _Part:
        key = id(parameter), what
        known = self._known.get(key)
        name = self._name(parameter)
        if known is None or known.name != name:
            made = self._made(like if what == "gradient" else parameter)
            dtype, shape = str(like.dtype).removeprefix("torch."), tuple(parameter.shape)
            known = self._known[key] = _Part(name, what, dtype, shape, self._place, *made)
        return known

    def _name(self, parameter: Tensor) -> str:
        known = self._named.get(id(parameter))
        if known is None:
            names = self._names()
            name = names.get(id(parameter)) or f"parameter {len(self._named)}"
            known = self._named[id(parameter)] = name  # no weak reference: torch refuses to swap a tensor that has one
        return known

    def read(self) -> tuple[Compared, ...]:
        """Everything that was compared."""
        sums = self._sums.read()
        return tuple(_compared(part, steps, sums[part]) for part, steps in self._steps.read().items())


def _parameters(optimizer: Any) -> list[Tensor]:
    found = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
    return [p for p in found if isinstance(p, Tensor) and p.dtype.is_floating_point and plain(p)]


def _compared(s: _Part, steps: Mapping[str, float], row: Mapping[str, float]) -> Compared:
    return Compared(
        name=s.name,
        what=s.what,
        dtype=s.dtype,
        shape=s.shape,
        place=s.place,
        event=s.event,
        op=s.op,
        steps=int(steps["steps"]),
        zero=int(steps["zero"]),
        size=ratio(row, "true", "elements") ** 0.5,
        error=ratio(row, "total", "true") ** 0.5,
        arrived=ratio(row, "arrived", "due", 1.0),
        lost=ratio(row, "lost_all", "nonzero_true"),
        flushed=ratio(row, "flushed", "nonzero_true"),
        spoiled=int(row["spoiled"]),
    )
