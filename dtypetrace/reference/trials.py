"""Which rounding a damaged result comes from, tried: the calls that led to it are made again, and beside them each
candidate is left out, with the program's own rounding everywhere else.

The result of an op that is left out is computed in higher precision and not rounded; what is computed from it is
rounded as the program rounds it. If the damaged result comes back to the reference's, that op is the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ..capture import private, warning_places
from ..records import LeftOut
from .calls import Done, ReferencedCall, tensors_of
from .choices import rarer
from .engine import Engine, Written
from .operators import Kind
from .shadows import floating
from .tape import Call, Tape

Tensor = torch.Tensor
MOST_WORK = 8000
"""Calls that are made again, each once for the program, the reference and each trial: about a second on a CPU."""
CALLS_OF_RESULT = 8
"""Calls of the damaged op that are looked at."""
Asked = tuple[int, tuple[tuple[int, ...], ...], str]
"""A damaged op, the ops to leave out (each entry together), and the unit of its damage (``Tried.unit``)."""


class Undone(Engine):
    """The program's values without the rounding of some ops."""

    def __init__(self, undone: Sequence[int]) -> None:
        super().__init__(lambda number, followed: None, lambda number, sums: None)
        self.undone = frozenset(undone)

    def _rerun(self, done: Done, kind: Kind, written: Written | None) -> None:
        tensors, before = (written.tensors, written.before) if written is not None else ([], [])
        call = ReferencedCall(self.shadows, done, kind, tensors, before)
        if not call.made or not call.followable:
            return
        undone = done.number in self.undone
        if not (undone or call.inherits or call.changed):
            return
        locals_ = call.run(local=True)
        results = call.run(local=False)
        for made, local, result in zip(call.made, locals_, results):
            if result is not None and not undone and _rounds(call, made, local):
                result = result.to(made.dtype).to(result.dtype)
            self._keep(done.number, made, result)


def _rounds(call: ReferencedCall, made: Tensor, local: Tensor | None) -> bool:
    """Whether the program rounds what a call makes: it is narrower than what the call takes, or no copy of it."""
    if any(floating(t.dtype) and t.dtype.itemsize > made.dtype.itemsize for t in call.operands):
        return True
    return local is None or not torch.equal(made.to(local.dtype), local)


@dataclass
class _Sums:
    """The damage of one result, over its calls: that of the program and that of each trial, of a size."""

    unit: str
    error: float = 0.0
    size: float = 0.0
    after: list[float] = field(default_factory=list)

    def of(self, part: float) -> float:
        share = part / self.size
        return share**0.5 if self.unit in _ERRORS else share


_ERRORS = ("error", "change")
"""The units that are root mean squares."""


def tried(tape: Tape, asked: Sequence[Asked]) -> tuple[LeftOut, ...]:
    """What became of each damaged result without the rounding of each candidate."""
    found: list[LeftOut] = []
    left = MOST_WORK
    with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
        for number, candidates, unit in asked:
            calls = tape.needed((number,), CALLS_OF_RESULT)
            work = len(calls) * (2 + len(candidates))
            if 0 < work <= left:
                left -= work
                found += warning_places.unheard(partial(_of, tape, calls, number, candidates, unit))
    return tuple(found)


def _of(
    tape: Tape, calls: list[Call], number: int, candidates: tuple[tuple[int, ...], ...], unit: str
) -> list[LeftOut]:
    reference = Engine(lambda number, followed: None, lambda number, sums: None)
    reference.measuring = False
    engines = [reference, *(Undone(ops) for ops in candidates)]
    sums = _Sums(unit, after=[0.0] * len(candidates))

    def each(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = [e.before(call.func, args, kwargs) for e in engines]
        changes = unit == "change" and call.number == number and bool(args)
        old = _held(args[0], engines) if changes else []
        out = call.func(*args, **kwargs)
        for e, w in zip(engines, written):
            e.after(Done(call.number, call.func, args, kwargs, out), w)
        if changes and old:
            new = _held(args[0], engines)
            _add(sums, [n - o for n, o in zip(new, old)])
        elif call.number == number:
            _add(sums, _chosen(call, args, kwargs, out, engines) if unit == "choices" else _made(out, engines))
        return out

    tape.play(calls, each)
    if not sums.size:
        return []
    before = sums.of(sums.error)
    return [LeftOut(number, ops, before, sums.of(a), unit) for ops, a in zip(candidates, sums.after)]


def _add(sums: _Sums, values: list[Tensor]) -> None:
    """Adds one call: the program's numbers, the reference's, and those of each trial."""
    if not values:
        return
    made, true, *others = values
    known = torch.isfinite(true) if true.is_floating_point() else torch.ones_like(true, dtype=torch.bool)
    if sums.unit == "merged":
        size = float(_apart(true).sum())
    elif true.dtype is torch.bool:
        size = float(torch.maximum(rarer(true), (made != true).sum()))
    else:
        size = float(torch.where(known, true, 0.0).double().square().sum()) if sums.unit in _ERRORS else true.numel()
    sums.size += size
    sums.error += _damage(sums.unit, made, true, known, size)
    for n, value in enumerate(others):
        sums.after[n] += _damage(sums.unit, value, true, known, size)


def _damage(unit: str, value: Tensor, true: Tensor, known: Tensor, size: float) -> float:
    if unit == "choices":
        return float((value != true).sum())
    if unit == "merged":
        return float((_apart(true) & ~_apart(value)).sum())
    spoiled = int((~torch.isfinite(value[known])).sum())
    if spoiled:
        return max(size, 1.0) * _SPOILED * spoiled**2
    return float((value - true)[known].double().square().sum())


def _apart(values: Tensor) -> Tensor:
    """Which neighbours are different numbers."""
    flat = values.reshape(-1)
    return flat[1:] != flat[:-1]


_SPOILED = 1e12
"""The squared error, relative to its size, of a result with one number that is infinite or NaN and should not be."""


def _held(tensor: Any, engines: list[Engine]) -> list[Tensor]:
    """What the program, the reference and each trial hold for a tensor; nothing where it is no floating one."""
    if not isinstance(tensor, Tensor) or not floating(tensor.dtype) or tensor.is_complex():
        return []
    wide = engines[0].shadows.wide_of(tensor.dtype)
    own = [e.shadows.of(tensor) for e in engines]
    return [tensor.to(wide, copy=True), *((tensor if o is None else o).to(wide, copy=True) for o in own)]


def _made(out: Any, engines: list[Engine]) -> list[Tensor]:
    return next((held for t in tensors_of(out) if (held := _held(t, engines))), [])


def _chosen(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, engines: list[Engine]) -> list[Tensor]:
    """The integers that a call chose, and those that the reference and each trial choose."""
    source = args[0] if args else None
    if not isinstance(source, Tensor) or not floating(source.dtype):
        return []
    held = [o if (o := e.shadows.of(source)) is not None else source for e in engines]
    wide = [value.to(e.shadows.wide_of(source.dtype)) for e, value in zip(engines, held)]
    # a number with which is compared is rounded to the dtype of what is compared with it
    rounds = [
        isinstance(e, Undone) and call.number not in e.undone and torch.equal(v.to(source.dtype).to(v.dtype), v)
        for e, v in zip(engines, wide)
    ]
    again = [call.func(v.to(source.dtype) if r else v, *args[1:], **kwargs) for v, r in zip(wide, rounds)]
    found = [next((t for t in tensors_of(o) if not floating(t.dtype)), None) for o in (out, *again)]
    known = [f for f in found if f is not None]
    return known if len(known) == len(found) else []
