"""Compares what accumulates over steps with its reference: gradients as the optimizer gets them, updates, its state.

It compares samples; but whether a gradient is zero is checked on all of it. The sums stay on the device and are read at
the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..capture.totals import Totals, kind_on, ratio
from ..records import Compared
from .calls import plain
from .errors import HALF
from .samples import sample, summed
from .shadows import Shadows

Tensor = torch.Tensor
_PLAIN = (Tensor, torch.nn.Parameter)
_LEAST_SAMPLE, _MOST_SAMPLE, _OF_EACH = 1 << 12, 1 << 15, 32
"""Elements of a gradient that are compared: one of so many, because those of an embedding are in a few rows, but at
least and at most so many."""
_COLUMNS = "steps", "zero", "size", "error", "along", "due", "lost", "flushed", "spoiled", "elements"
"""Sums over steps: those with a reference, those of zeros, then of all elements that were compared."""
_BATCH = 1 << 19
"""Elements that are compared at once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """One parameter's gradients, updates or state."""

    name: str
    what: str
    dtype: str
    shape: tuple[int, ...]
    place: int
    event: int
    op: int


class _Pair(NamedTuple):
    """One comparison of one step: samples, which may share memory with the program's tensors."""

    sums: _Sums
    made: Tensor
    true: Tensor
    nonzero: Tensor | None
    """How many elements of the tensor that ``made`` is a sample of are not zero; None where the sample is all of it."""


class Comparisons:
    """Compares the steps of every optimizer. names: of the parameters, by id. made: returns the numbers of the event
    that decided a tensor's dtype and of the op that made it."""

    def __init__(
        self, shadows: Shadows, names: Callable[[], dict[int, str]], made: Callable[[Tensor], tuple[int, int]]
    ) -> None:
        self._shadows = shadows
        self._names = names
        self._made = made
        self._totals = Totals[_Sums](*_COLUMNS)
        self._known: dict[tuple[int, str], _Sums] = {}
        self._named: dict[int, str] = {}
        self._before: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._pairs: list[_Pair] = []
        self._waiting = 0
        """Elements in the pairs."""
        self._place = -1

    def forget(self) -> None:
        """Drops every tensor of the program's."""
        self._before, self._pairs, self._waiting = [], [], 0

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
                    part = sample(gradient, size)
                    nonzero = torch.count_nonzero(gradient) if gradient.numel() > part.numel() else None
                    sums = self._sums(parameter, "gradient", gradient)
                    self._pair(_Pair(sums, part, sample(reference, size), nonzero))
        self._fold()

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
                sums = self._sums(parameter, "update", parameter)
                self._pair(_Pair(sums, new.to(old_wide.dtype) - old_wide, due, None))
            held = state.get(parameter) if hasattr(state, "get") else None
            for name, value in held.items() if isinstance(held, dict) else ():
                self._held(parameter, str(name), value)
        self._fold()

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
            self._pair(_Pair(self._sums(parameter, name, value), sample(value), sample(reference), None))

    def _pair(self, pair: _Pair) -> None:
        self._pairs.append(pair)
        self._waiting += pair.made.numel()
        if self._waiting > _BATCH:
            self._fold()

    def _fold(self) -> None:
        """Adds the waiting comparisons to their sums, all of one device at once: each operator costs a call."""
        pairs, self._pairs, self._waiting = self._pairs, [], 0
        for device in {p.made.device for p in pairs}:
            here = [p for p in pairs if p.made.device == device]
            self._totals.add_rows([pair.sums for pair in here], _table(here, device))

    def _sums(self, parameter: Tensor, what: str, like: Tensor) -> _Sums:
        key = id(parameter), what
        known = self._known.get(key)
        name = self._name(parameter)
        if known is None or known.name != name:
            made = self._made(like if what == "gradient" else parameter)
            dtype, shape = str(like.dtype).removeprefix("torch."), tuple(parameter.shape)
            known = self._known[key] = _Sums(name, what, dtype, shape, self._place, *made)
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
        return tuple(_compared(sums, row) for sums, row in self._totals.read().items())


def _parameters(optimizer: Any) -> list[Tensor]:
    found = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
    return [p for p in found if isinstance(p, Tensor) and p.dtype.is_floating_point and plain(p)]


def _table(pairs: list[_Pair], device: torch.device) -> Tensor:
    """A row for each comparison."""
    kind = kind_on(device)
    sizes = [p.made.numel() for p in pairs]
    made = torch.cat([p.made.detach().to(kind) for p in pairs])
    true = torch.cat([p.true.to(kind) for p in pairs])
    known, sound = torch.isfinite(true), torch.isfinite(made)
    both = known & sound
    m, t = torch.where(both, made, 0.0), torch.where(both, true, 0.0)
    due = known & (true != 0)
    lost = due & (~sound | ((m - t).abs() >= HALF * true.abs()))
    columns = [
        t.square(),
        (m - t).square(),
        m * t,
        due,
        lost,
        due & (made == 0),
        known & ~sound,
        known,
        made != 0,
    ]
    sums = summed([c.to(kind) for c in columns], sizes, device)
    for row, pair in zip(sums, pairs):
        if pair.nonzero is not None:
            row[-1] = pair.nonzero
    alive = sums[:, 3] > 0
    zero = alive & (sums[:, -1] == 0)
    return torch.cat([alive.to(kind)[:, None], zero.to(kind)[:, None], sums[:, :-1]], 1)


def _compared(s: _Sums, row: Mapping[str, float]) -> Compared:
    return Compared(
        name=s.name,
        what=s.what,
        dtype=s.dtype,
        shape=s.shape,
        place=s.place,
        event=s.event,
        op=s.op,
        steps=int(row["steps"]),
        zero=int(row["zero"]),
        size=ratio(row, "size", "elements") ** 0.5,
        error=ratio(row, "error", "size") ** 0.5,
        arrived=ratio(row, "along", "size", 1.0),
        lost=ratio(row, "lost", "due"),
        flushed=ratio(row, "flushed", "due"),
        spoiled=int(row["spoiled"]),
    )
