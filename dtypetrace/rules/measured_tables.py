"""Measured tables (DT204): made of factories and integers only, in a run that was also computed in higher precision.

Which tables are judged, and who made them narrow, is as in :mod:`.narrow_tables`; what is lost is measured. A table of
constants needs only one rounding, and its neighbours are meant to be different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..records import FORWARD, Finding, Op, Precision
from ..tables.dtypes import HALF, REAL
from ..tables.operators import tagged, writes
from . import narrow_tables
from .losses import ROUNDING, Losses
from .mechanisms import LEAST_STEPS

COARSE = 3 * ROUNDING
"""A table is made of constants, which need only one rounding."""
_MERGED = 0.1
"""The share of a table's entries that may be equal to their neighbours, at its fine end."""
_BLURRED = 0.02
"""The share of a table's entries that may be equal to neighbours from which they differ by more than a detail."""
_SPOILT = 0.25
"""The error of a table, relative to it, that shows in a few calls."""


def _is_coarse(op: Op, p: Precision) -> bool:
    """Whether a table has a larger error than one rounding explains."""
    return is_blurred(op, p) or p.total >= COARSE or tagged(op, "sequence") and p.merged >= _MERGED


def is_blurred(op: Op, p: Precision) -> bool:
    """Whether neighbours in a table are equal that should be different numbers."""
    return p.blurred >= _BLURRED


def is_spoilt(op: Op, p: Precision) -> bool:
    """Whether a small sample of a table shows damage: equal neighbours, or a quarter of the numbers."""
    return is_blurred(op, p) or p.total >= _SPOILT


def find(
    losses: Losses, bad: Callable[[Op, Precision], bool] = _is_coarse, *, counted: bool = False
) -> Iterable[Finding]:
    """DT204: tables made of factories and integers only, that are ``bad``. counted: only those that are made from a
    sequence or a count."""
    run = losses.run
    found: dict[tuple[object, ...], Finding] = {}
    coarse = {n for n in losses.of if _changes_a_state(run.ops[n])} | {v.op for v in run.recording.values if v.kept}
    for number, p in losses.of.items():
        op = run.ops[number]
        if op.phase not in FORWARD or not op.outputs or p.spoiled or not p.total:
            continue
        if tagged(op, "adds_at") and p.introduced >= COARSE:
            coarse.add(number)  # a write rounds once: this adds numbers up, and loses some of them
            continue
        if op.outputs[0] in REAL and not bad(op, p):
            continue
        if op.outputs[0] not in REAL:
            for f in narrow_tables.counted_back(run, number, op):
                found.setdefault(_birth(f), f)
            continue
        if number in coarse or coarse.intersection(losses.sources(number)):
            coarse.add(number)
            continue
        source = narrow_tables.source_of(run, number, narrow_tables.MEASURED_NO_TABLE)
        narrow = source.narrow[-1] if source.narrow else (number, -1) if op.outputs[0] in HALF else None
        if source.pure and narrow is not None and (source.counted or not counted):
            coarse.add(number)
            at, index = narrow
            f = narrow_tables.table_finding(run, narrow_tables.Narrow(at, index, _coarse(p)), op)
            found.setdefault(_birth(f), f)
    yield from found.values()


def _changes_a_state(op: Op) -> bool:
    """Whether an op changes a tensor again and again, so that it is no table."""
    return writes(op) and not tagged(op, "store") and op.count > LEAST_STEPS


def _coarse(p: Precision) -> str:
    if p.blurred >= _BLURRED:
        return f"{p.blurred:.0%} of its entries became equal to the next one, although they are at least 1/8 apart"
    if p.merged >= _MERGED:
        return f"{p.merged:.0%} of its entries became equal to the next one"
    return f"its entries have an error of {p.total:.1%}; one rounding would cost {ROUNDING / 2:.1%}"


def _birth(f: Finding) -> tuple[object, ...]:
    return f.culprit.origin.place.stack[:1] or (f.culprit.name,) if f.culprit is not None else ()
