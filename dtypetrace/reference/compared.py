"""Compares what accumulates over steps with its reference: gradients as the optimizer gets them, updates, its state.

It compares samples; but whether a gradient is zero is checked on all of it. The sums stay on the device and are read at
the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..records import Compared
from .errors import HALF
from .samples import sample
from .shadows import Shadows

Tensor = torch.Tensor
_PLAIN = (Tensor, torch.nn.Parameter)
_GRADIENT = 1 << 15
"""Elements of a gradient that are compared; many, because those of an embedding are in a few rows."""


class _Sums:
    """One parameter's gradients, updates or state: sums over the steps."""

    __slots__ = ("name", "what", "dtype", "shape", "place", "event", "op", "sums")

    def __init__(
        self, name: str, what: str, like: Tensor, shape: tuple[int, ...], place: int, made: tuple[int, int]
    ) -> None:
        self.name, self.what, self.place = name, what, place
        self.event, self.op = made
        self.dtype, self.shape = str(like.dtype).removeprefix("torch."), shape
        self.sums: Tensor | None = None

    def add(self, row: Tensor) -> None:
        self.sums = row if self.sums is None else self.sums + row


class Comparisons:
    """Compares the steps of every optimizer. names: of the parameters, by id. made: returns the numbers of the event
    that decided a tensor's dtype and of the op that made it."""

    def __init__(
        self, shadows: Shadows, names: Callable[[], dict[int, str]], made: Callable[[Tensor], tuple[int, int]]
    ) -> None:
        self._shadows = shadows
        self._names = names
        self._made = made
        self._known: dict[tuple[int, str], _Sums] = {}
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
            if gradient is not None and type(gradient) in _PLAIN and gradient.layout is torch.strided:
                reference = self._shadows.of(gradient)
                if reference is not None:
                    parts = sample(gradient, _GRADIENT), sample(reference, _GRADIENT)
                    self._sums(parameter, "gradient", gradient).add(_row(*parts, gradient))

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
                self._sums(parameter, "update", parameter).add(_row(new.to(old_wide.dtype) - old_wide, due))
            held = state.get(parameter) if hasattr(state, "get") else None
            for name, value in held.items() if isinstance(held, dict) else ():
                self._held(parameter, str(name), value)

    def _held(self, parameter: Tensor, name: str, value: Any) -> None:
        if (
            not isinstance(value, Tensor)
            or type(value) not in _PLAIN
            or not value.dim()
            or not value.dtype.is_floating_point
        ):
            return
        reference = self._shadows.of(value)
        if reference is not None:
            self._sums(parameter, name, value).add(_row(sample(value), sample(reference)))

    def _sums(self, parameter: Tensor, what: str, like: Tensor) -> _Sums:
        key = id(parameter), what
        known = self._known.get(key)
        name = self._name(parameter)
        if known is None or known.name != name:
            made = self._made(like if what == "gradient" else parameter)
            known = self._known[key] = _Sums(name, what, like, tuple(parameter.shape), self._place, made)
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
        filled = [s for s in self._known.values() if s.sums is not None]
        return tuple(_compared(s, s.sums.tolist()) for s in filled if s.sums is not None)


def _parameters(optimizer: Any) -> list[Tensor]:
    found = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
    return [
        p for p in found if isinstance(p, Tensor) and type(p) in _PLAIN and p.dtype.is_floating_point and not p.is_meta
    ]


def _row(made: Tensor, true: Tensor, whole: Tensor | None = None) -> Tensor:
    """Sums over one comparison: steps with a reference, steps of zeros, sizes, errors, shares. whole: the tensor that
    ``made`` is a sample of."""
    kind = torch.float32 if made.device.type == "mps" else torch.float64
    made, true = made.detach().to(kind), true.to(kind)
    known, sound = torch.isfinite(true), torch.isfinite(made)
    both = known & sound
    m, t = torch.where(both, made, 0.0), torch.where(both, true, 0.0)
    due = known & (true != 0)
    alive = due.any()
    lost = due & (~sound | ((m - t).abs() >= HALF * true.abs()))
    columns = [
        alive,
        alive & (torch.count_nonzero(made if whole is None else whole) == 0),
        t.square().sum(),
        (m - t).square().sum(),
        (m * t).sum(),
        due.sum(),
        lost.sum(),
        (due & (made == 0)).sum(),
        (known & ~sound).sum(),
        known.sum(),
    ]
    return torch.stack([c.to(kind) for c in columns])


def _compared(s: _Sums, row: list[float]) -> Compared:
    steps, zero, size, error, along, due, lost, flushed, spoiled, elements = row
    return Compared(
        name=s.name,
        what=s.what,
        dtype=s.dtype,
        shape=s.shape,
        place=s.place,
        event=s.event,
        op=s.op,
        steps=int(steps),
        zero=int(zero),
        size=(size / elements) ** 0.5 if elements else 0.0,
        error=(error / size) ** 0.5 if size else 0.0,
        arrived=along / size if size else 1.0,
        lost=lost / due if due else 0.0,
        flushed=flushed / due if due else 0.0,
        spoiled=int(spoiled),
    )
