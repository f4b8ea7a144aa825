"""Angles that a running sum makes so large that float32 holds only some of a turn (DT308): the phase of an oscillator
that nobody wraps. The sine of such an angle is noise, and no operation has lost anything: each sum is right to its bit.

What 16 bits round is compared call by call, and positions that are multiplied are tables (``narrow_tables``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, log2, tau

from .. import graph
from ..records import FORWARD, Finding
from ..tables.dtypes import DTYPES
from ..tables.english import quoted
from ..tables.operators import is_move, tagged
from .advice import advise
from .run_facts import Run
from .silent_findings import found_at, result_of

_TURN = tau / 64
"""Neighbouring angles that lie so far apart are of a turn of few."""
_WIDE = "float32"


def find(run: Run) -> Iterator[Finding]:
    """One finding for each running sum."""
    told: set[int] = set()
    for op in run.ops:
        if not tagged(op, "angle") or op.phase not in FORWARD or [i.dtype for i in op.inputs] != [_WIDE]:
            continue
        angle = op.inputs[0].producer
        way = graph.first_operands(run.ops, angle)
        number = next((n for n in way if not (is_move(run.ops[n]) or tagged(run.ops[n], "scale"))), -1)
        peak = next((run.peaks[n] for n in graph.first_operands(run.ops, angle) if n in run.peaks), 0.0)
        step = 2.0 ** (floor(log2(peak)) - DTYPES[_WIDE].digits + 1) if peak > 0 else 0.0
        if step < _TURN or number < 0 or number in told or not tagged(run.ops[number], "running"):
            continue
        told.add(number)
        total = run.ops[number]
        change = f"add up in float64, or take {quoted(total.op)} modulo a turn as it goes"
        said = f"angles up to {peak:,.0f}, of which neighbours lie {step:.2g} apart in {_WIDE}: a turn is {tau:.2f}"
        yield found_at(
            run, op, "DT308", result_of(run, total, "computed"), advise(run.place(total), change),
            source=_WIDE, said=said, title=f"{quoted(op.op)} takes angles that {_WIDE} rounds to a part of a turn",
        )  # fmt: skip
