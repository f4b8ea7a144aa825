"""Errors, summed by what has them: each op over its calls, or what a parameter's steps made (``compared``). They are
computed on the tensors' device and read once, at the end.

For each result, a sample of its elements is kept with the same elements of the local result and of the reference, for
some hundred calls at a time; then all of them are summed at once. Only reading waits for a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import torch

from ..capture import private
from ..capture.totals import Key, Totals, kind_on, ratio
from ..records import Precision
from .engine import Followed
from .samples import SIZE, own_sample, owners, summed

Tensor = torch.Tensor
_BATCH = 256
STEP = 0.125
"""An eighth: that far apart, two positions, angles or logarithms are different numbers for what is computed from
them."""
OF_NOTHING = 2.0**52
"""The error of what is exactly zero in higher precision and is not zero in the program, such as the difference of two
results that should be equal; nothing is larger."""
HALF = 0.5
"""A number counts as lost if its relative error is at least this: not even its leading digit is right."""

_COLUMNS = (
    "elements", "nonzero", "introduced", "own", "total", "true", "lost", "nonzero_true", "lost_all", "flushed",
    "infinite", "spoiled", "due", "arrived", "changing", "changed", "pairs", "merged", "blurred", "vanished",
    "bad_calls",
)  # fmt: skip
"""Sums over the sampled elements of an op's results; the last two count calls."""
_LOST_ALL, _NONZERO_TRUE, _VANISHED = map(_COLUMNS.index, ("lost_all", "nonzero_true", "vanished"))


@dataclass(slots=True)
class Row(Generic[Key]):
    """One result, sampled, and what it is compared with; before: what it was changed from."""

    key: Key
    made: Tensor
    local: Tensor
    reference: Tensor
    before: Tensor | None
    normal: float
    """What is smaller may become zero: the smallest number that the program's dtype holds with all its digits."""


class Sums(Generic[Key]):
    """The sums of what was compared, by key."""

    def __init__(self) -> None:
        self._waiting: list[Row[Key]] = []
        self._elements = 0
        self._sums = Totals[Key](*_COLUMNS)

    def add(self, row: Row[Key]) -> None:
        self._waiting.append(row)
        self._elements += row.made.numel()
        if len(self._waiting) >= _BATCH or self._elements >= _BATCH * SIZE:
            self.fold()

    def fold(self) -> None:
        """Adds the waiting samples to the sums, all of one device at once: each operator costs a call."""
        waiting, self._waiting, self._elements = self._waiting, [], 0
        for device in {row.made.device for row in waiting}:
            rows = [row for row in waiting if row.made.device == device]
            self._sums.add_rows([row.key for row in rows], _reduced(rows, device))

    def read(self) -> dict[Key, dict[str, float]]:
        """All sums, by key and column. Waits for each device."""
        self.fold()
        return self._sums.read()


class Errors:
    """Accumulates the errors of the ops of one recording. The samples are its own: nothing of the program's is kept."""

    def __init__(self) -> None:
        self._sums = Sums[int]()
        self._choices = Totals[int]("error", "size", "others", "choices")
        self._effects = Totals[int]("effect")
        self._calls: dict[int, int] = {}

    def saw(self, number: int, followed: list[Followed]) -> None:
        """Adds one call of op ``number``."""
        self._calls[number] = self._calls.get(number, 0) + 1
        for f in followed:
            if f.made.numel():
                local = own_sample(f.local)
                reference = own_sample(f.reference) if f.local is not f.reference else local
                self._sums.add(Row(number, own_sample(f.made), local, reference, f.before, _normal(f.made.dtype)))

    def chose(self, number: int, sums: Tensor) -> None:
        """Adds what one call of op ``number`` chose: the sums of ``choices``."""
        self._choices.add(number, sums.to(kind_on(sums.device)))

    def weigh(self, number: int, gradient: Tensor, error: Tensor, share: float) -> None:
        """Multiplies an op's introduced error by the gradient of its result: a sample of both, and how many elements
        each sampled element represents."""
        products = gradient.double() * error.double()
        # errors of both signs partly cancel; errors of one sign add up
        effect = torch.maximum(products.sum().abs() * share, (products.square().sum() * share).sqrt())
        self._effects.add(number, effect.view(1))

    def read(self, above: Mapping[int, set[int]]) -> tuple[Precision, ...]:
        """The error of every op. Only this method waits for a device. above: the ops that made each op's operands."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            sums, chosen, effects = self._sums.read(), self._choices.read(), self._effects.read()
        return tuple(
            _precision(
                n,
                self._calls.get(n, 0),
                sums.get(n, dict.fromkeys(_COLUMNS, 0.0)),
                effects[n]["effect"] if n in effects else 0.0,
                chosen.get(n, dict.fromkeys(self._choices.columns, 0.0)),
                above.get(n),
            )
            for n in sorted(sums.keys() | chosen.keys())
        )


def _precision(
    number: int,
    calls: int,
    row: Mapping[str, float],
    effect: float,
    chosen: Mapping[str, float],
    above: Iterable[int] | None,
) -> Precision:
    return Precision(
        op=number,
        calls=calls,
        elements=int(row["elements"]),
        introduced=ratio(row, "introduced", "own") ** 0.5,
        total=ratio(row, "total", "true", OF_NOTHING**2 if row["total"] else 0.0) ** 0.5,
        size=ratio(row, "true", "elements") ** 0.5,
        lost=ratio(row, "lost", "nonzero"),
        lost_in_all=ratio(row, "lost_all", "nonzero_true"),
        flushed=ratio(row, "flushed", "nonzero"),
        infinite=int(row["infinite"]),
        spoiled=int(row["spoiled"]),
        arrived=ratio(row, "arrived", "due", -1.0),
        changed=ratio(row, "changed", "changing", -1.0),
        lost_calls=int(row["bad_calls"]),
        effect=effect,
        merged=ratio(row, "merged", "pairs"),
        blurred=ratio(row, "blurred", "pairs"),
        vanished=row["vanished"] / calls if calls else 0.0,
        apart=ratio(chosen, "error", "size") ** 0.5,
        others=ratio(chosen, "others", "choices"),
        above=None if above is None else tuple(sorted(above)),
    )


def _normal(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).smallest_normal if dtype.is_floating_point or dtype.is_complex else 0.0


def _reduced(rows: list[Row[Any]], device: torch.device) -> Tensor:
    """Sums of each row, in the order of the columns above."""
    kind = kind_on(device)
    sizes = [r.made.numel() for r in rows]

    def flat(parts: list[Tensor]) -> Tensor:
        return torch.cat([p.to(kind) for p in parts])

    made, local, true = flat([r.made for r in rows]), flat([r.local for r in rows]), flat([r.reference for r in rows])
    before = flat([r.before if r.before is not None else torch.full_like(r.made, float("nan")) for r in rows])
    limits = torch.tensor([r.normal for r in rows], dtype=kind)
    normal = limits.to(device)[owners(sizes, device)]
    known, known_true, sound = torch.isfinite(local), torch.isfinite(true), torch.isfinite(made)
    both, all_ = known & sound, known_true & sound
    own, total = _difference(made, local, both), _difference(made, true, all_)
    nonzero, nonzero_true = known & (local != 0), known_true & (true != 0)
    lost = nonzero & (~sound | (own.abs() >= HALF * local.abs()))
    lost_all = nonzero_true & (~sound | (total.abs() >= HALF * true.abs()))
    changes = torch.isfinite(before) & both
    due, done = _difference(local, before, changes), _difference(made, before, changes)
    columns = [
        torch.ones_like(made),
        nonzero,
        own.square(),
        torch.where(both, local, 0.0).square(),
        total.square(),
        torch.where(all_, true, 0.0).square(),
        lost,
        nonzero_true,
        lost_all,
        nonzero & (made == 0) & (local.abs() < normal),
        known & ~sound,
        known_true & ~sound,
        due.square(),
        due * done,
        changes & (due != 0),
        changes & (due != 0) & (done != 0),
        *_neighbours(made, true, _first_of_pairs(sizes).to(device), all_),
        nonzero_true & (made == 0) & (true.abs() < normal),
    ]
    table = summed([c.to(kind) for c in columns], sizes, device)
    nonzero = table[:, _NONZERO_TRUE]
    bad = (table[:, _LOST_ALL] >= HALF * nonzero) & (nonzero > 0)
    table[:, _VANISHED] = ((table[:, _VANISHED] >= nonzero) & (nonzero > 0)).to(kind)
    return torch.cat([table, bad.to(kind)[:, None]], 1)


def _neighbours(made: Tensor, true: Tensor, first: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which elements differ from the next one; which of those are equal to it in the program's dtype; and which of
    these are above zero and at least a ``STEP`` apart: what is far below may be meant to vanish in an exponential.

    first: the first elements of the pairs of neighbours that a sample consists of."""
    apart, same, far = (torch.zeros_like(known) for _ in range(3))
    apart[:-1] = (true[1:] != true[:-1]) & first[:-1] & known[1:] & known[:-1]
    same[:-1] = made[1:] == made[:-1]
    far[:-1] = ((true[1:] - true[:-1]).abs() >= STEP) & (true[:-1] > 0)
    return apart, apart & same, apart & same & far


def _first_of_pairs(sizes: list[int]) -> Tensor:
    """Whether an element is the first of a pair, in samples of these sizes one after the other."""
    first = torch.zeros(sum(sizes), dtype=torch.bool)
    start = 0
    for size in sizes:
        first[start : start + size - 1 : 2] = True
        start += size
    return first


def _difference(one: Tensor, other: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, one - other, 0.0)
