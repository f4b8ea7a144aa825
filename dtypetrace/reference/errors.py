"""The error of each op, summed over its calls: computed on the tensors' device, read once at the end.

For each result, a sample of its elements is kept with the same elements of the local result and of the reference, for
some hundred calls at a time; then all of them are summed at once. Only :meth:`Errors.read` waits for a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..capture import private
from ..records import Precision
from .engine import Followed
from .samples import own_sample, owners, summed

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

(
    ELEMENTS,
    NONZERO,
    INTRODUCED,
    OWN,
    TOTAL,
    TRUE,
    LOST,
    NONZERO_TRUE,
    LOST_ALL,
    FLUSHED,
    INFINITE,
    SPOILED,
    DUE,
    ARRIVED,
    CHANGING,
    CHANGED,
    PAIRS,
    MERGED,
    BLURRED,
    VANISHED,
    BAD_CALLS,
) = range(21)


@dataclass(slots=True)
class _Row:
    """One result of one call, sampled. The tensors are its own: nothing of the program's is kept."""

    number: int
    made: Tensor
    local: Tensor
    reference: Tensor
    before: Tensor | None
    normal: float
    """The smallest number that the program's dtype holds with all its digits."""


class Errors:
    """Accumulates the errors of the ops of one recording."""

    def __init__(self) -> None:
        self._lanes: dict[torch.device, _Lane] = {}
        self.calls: dict[int, int] = {}

    def saw(self, number: int, followed: list[Followed]) -> None:
        """Adds one call of op ``number``."""
        self.calls[number] = self.calls.get(number, 0) + 1
        for f in followed:
            if f.made.numel():
                self._lane(f.made.device).add(number, f)

    def chose(self, number: int, sums: Tensor) -> None:
        """Adds what one call of op ``number`` chose: the sums of ``choices``."""
        self._lane(sums.device).chose(number, sums)

    def weigh(self, number: int, gradient: Tensor, error: Tensor, share: float) -> None:
        """Multiplies an op's introduced error by the gradient of its result: a sample of both, and how many elements
        each sampled element represents."""
        self._lane(error.device).weighed.append((number, (gradient.double() * error.double()), share))

    def _lane(self, device: torch.device) -> _Lane:
        lane = self._lanes.get(device)
        if lane is None:
            lane = self._lanes[device] = _Lane(device)
        return lane

    def read(self, above: Mapping[int, set[int]]) -> tuple[Precision, ...]:
        """The error of every op. Only this method waits for a device. above: the ops that made each op's operands."""
        sums: dict[int, list[float]] = {}
        effects: dict[int, float] = {}
        chosen: dict[int, list[float]] = {}
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            for lane in self._lanes.values():
                for number, row in lane.read():
                    known = sums.get(number)
                    sums[number] = row if known is None else [a + b for a, b in zip(known, row)]
                for number, effect in lane.effects.items():
                    effects[number] = effects.get(number, 0.0) + float(effect)
                for number, choice in lane.choices.items():
                    known = chosen.get(number, [0.0] * len(choice))
                    chosen[number] = [a + b for a, b in zip(known, choice.tolist())]
        return tuple(
            _precision(n, self.calls.get(n, 0), sums.get(n, _NO_ROW), effects.get(n, 0.0), above.get(n), chosen.get(n))
            for n in sorted(sums.keys() | chosen.keys())
        )


_NO_ROW = (0.0,) * (BAD_CALLS + 1)


def _precision(
    number: int,
    calls: int,
    row: Sequence[float],
    effect: float,
    above: Iterable[int] | None,
    chosen: Sequence[float] | None,
) -> Precision:
    error, size, others, choices = chosen or (0.0, 0.0, 0.0, 0.0)

    def ratio(part: int, of: int) -> float:
        return row[part] / row[of] if row[of] else 0.0

    return Precision(
        op=number,
        calls=calls,
        elements=int(row[ELEMENTS]),
        introduced=ratio(INTRODUCED, OWN) ** 0.5,
        total=ratio(TOTAL, TRUE) ** 0.5 if row[TRUE] or not row[TOTAL] else OF_NOTHING,
        size=ratio(TRUE, ELEMENTS) ** 0.5,
        lost=ratio(LOST, NONZERO),
        lost_in_all=ratio(LOST_ALL, NONZERO_TRUE),
        flushed=ratio(FLUSHED, NONZERO),
        infinite=int(row[INFINITE]),
        spoiled=int(row[SPOILED]),
        arrived=ratio(ARRIVED, DUE) if row[DUE] else -1.0,
        changed=ratio(CHANGED, CHANGING) if row[CHANGING] else -1.0,
        lost_calls=int(row[BAD_CALLS]),
        effect=effect,
        merged=ratio(MERGED, PAIRS),
        blurred=ratio(BLURRED, PAIRS),
        vanished=row[VANISHED] / calls if calls else 0.0,
        apart=(error / size) ** 0.5 if size else 0.0,
        others=others / choices if choices else 0.0,
        above=None if above is None else tuple(sorted(above)),
    )


class _Lane:
    """The samples and sums on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.kind = torch.float32 if device.type == "mps" else torch.float64
        self.rows: list[_Row] = []
        self.weighed: list[tuple[int, Tensor, float]] = []
        self.sums: dict[int, Tensor] = {}
        self.effects: dict[int, Tensor] = {}
        self.choices: dict[int, Tensor] = {}

    def chose(self, number: int, sums: Tensor) -> None:
        known = self.choices.get(number)
        sums = sums.to(self.kind)
        self.choices[number] = sums if known is None else known + sums

    def add(self, number: int, f: Followed) -> None:
        local = own_sample(f.local)
        reference = own_sample(f.reference) if f.local is not f.reference else local
        self.rows.append(_Row(number, own_sample(f.made), local, reference, f.before, _normal(f.made.dtype)))
        if len(self.rows) >= _BATCH:
            self.fold()

    def fold(self) -> None:
        """Adds the waiting samples to the sums."""
        rows, self.rows = self.rows, []
        if rows:
            table = _reduced(rows, self.kind, self.device)
            for i, row in enumerate(rows):
                known = self.sums.get(row.number)
                self.sums[row.number] = table[i] if known is None else known + table[i]
        weighed, self.weighed = self.weighed, []
        for number, products, share in weighed:
            # errors of both signs partly cancel; errors of one sign add up
            effect = torch.maximum(products.sum().abs() * share, (products.square().sum() * share).sqrt())
            known = self.effects.get(number)
            self.effects[number] = effect if known is None else known + effect

    def read(self) -> list[tuple[int, list[float]]]:
        self.fold()
        if not self.sums:
            return []
        return list(zip(self.sums, torch.stack(list(self.sums.values())).tolist()))


def _normal(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).smallest_normal if dtype.is_floating_point or dtype.is_complex else 0.0


def _reduced(rows: list[_Row], kind: torch.dtype, device: torch.device) -> Tensor:
    """Sums of each row, in the order of the columns above."""
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
    bad = (table[:, LOST_ALL] >= HALF * table[:, NONZERO_TRUE]) & (table[:, NONZERO_TRUE] > 0)
    table[:, VANISHED] = ((table[:, VANISHED] >= table[:, NONZERO_TRUE]) & (table[:, NONZERO_TRUE] > 0)).to(kind)
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
