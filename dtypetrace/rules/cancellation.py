"""A variance as the difference of two large squares, E[x^2] - E[x]^2, in float32 (DT308).

Each of the two is rounded to 24 bits. Where their difference is smaller than 2**-20 of them, at most four of its bits
are left, and a root, a quotient or a logarithm goes on with what is mostly rounding. The sizes are those that were
measured in any case. A difference of other numbers may be as small as it likes: two results that are compared agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..records import FORWARD, Finding, Fix, FlowStep, Op, Operand, Origin
from ..tables.operators import is_cast, is_move, name_of, tagged
from .making import At, silent_finding
from .run_facts import Run
from .zeros import feeds_pole

_LEFT = 2.0**-20
"""The size of a difference, relative to what it is a difference of."""
_DEEP = 8
"""Ops above a difference that are searched for a square."""


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that subtracts so."""
    seen: set[object] = set()
    for number, op in enumerate(run.ops):
        if name_of(op) != "sub" or op.phase not in FORWARD or op.outputs != ("float32",) or len(op.inputs) != 2:
            continue
        place = run.place(op)
        if place.stack[:1] not in seen and _cancels(run, number, op) and _goes_on(run, number):
            seen.add(place.stack[:1])
            yield _finding(run, number, op)


def _cancels(run: Run, number: int, op: Op) -> bool:
    above = [i.producer for i in op.inputs]
    largest = min((run.peaks.get(n, 0.0) for n in above), default=0.0)
    if not 0 < run.peaks.get(number, 0.0) <= _LEFT * largest:
        return False
    return _square_of(run, above[1], 2) and _square_of(run, above[0], _DEEP)


def _square_of(run: Run, number: int, depth: int) -> bool:
    """Whether a number was made from squares, by means, sums and scalings only."""
    waiting = [(number, 0)]
    seen: set[int] = set()
    while waiting:
        at, far = waiting.pop()
        if at < 0 or at in seen or far > depth:
            continue
        seen.add(at)
        op = run.ops[at]
        name = name_of(op)
        same = len({(i.producer, i.event, i.name) for i in op.inputs}) == 1
        if same and (tagged(name, "power") or name == "mul" and len(op.inputs) == 2):
            return True
        if tagged(name, "sum", "total", "scale") or name == "lerp" or is_move(op) or is_cast(op):
            waiting += [(i.producer, far + 1) for i in op.inputs]
    return False


def _goes_on(run: Run, number: int) -> bool:
    """Whether a root, a quotient or a logarithm takes the difference, perhaps limited before."""
    return feeds_pole(run, number, ("root",))


def _finding(run: Run, number: int, op: Op) -> Finding:
    place = run.place(op)
    # float32 is nobody's mistake: the place to change is this one
    culprit = Operand(
        0, f"result of {op.op}", "float32", op.shape, op.device, None, Origin("factory", None, op.op, place)
    )
    size = max(run.peaks.get(i.producer, 0.0) for i in op.inputs)
    said = f"numbers of up to {size:.2g} are subtracted, and at most {run.peaks[number]:.2g} is left"
    return silent_finding(
        "DT308",
        "precision-loss",
        At.of(op, place),
        severity="warning",
        operands=(culprit,),
        flow=(FlowStep(place, op.op, op.module, "float32", "float32", "value", said=said),),
        fix=Fix(
            "dtype",
            place,
            (),
            False,
            "subtract the mean before squaring (Welford's update for a stream), or add up in float64",
            (),
        ),
        count=op.count,
        notes=(
            "float32 keeps 24 significant bits, and the difference begins below the 20th of them; --reference measures "
            "what it costs",
        ),
    )
