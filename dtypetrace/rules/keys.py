"""Numbers that must be told apart and became equal: keys (DT308), and the limits of intervals (DT204).

Whole numbers up to 2**24 are exact in float32. A key such as ``x * 4096 * 4096 + y * 4096 + z`` is larger: different
cells get one key, and ``unique`` pools them. The limits of intervals, a cumulative distribution or a list of times,
are searched by ``searchsorted``: where two are equal, the interval between them is never found.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..records import FORWARD, Finding, Fix, FlowStep, Op, Precision
from ..tables.dtypes import DTYPES, HALF, REAL
from ..tables.english import quoted
from ..tables.operators import is_cast, is_move, name_of, tagged
from .blame import at_op, event_of_output, flow_to, made_operand
from .making import At, silent_finding
from .run_facts import Run

_SEARCHED = {"searchsorted": 0, "bucketize": 1}
"""By operator, the operand that holds the limits."""
_COMBINE = "sum", "total", "product", "matmul", "join"
"""Of whole numbers these make whole numbers."""
_FAR = 24
"""Ops above a comparison that are looked at."""
_MERGED = 0.1
"""The share of limits that may be equal to their neighbours."""


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that compares such numbers."""
    measured = {p.op: p for p in (*run.recording.spot_checks, *run.recording.precisions)}
    seen: set[object] = set()
    for number, op in enumerate(run.ops):
        if op.phase not in FORWARD:
            continue
        name = name_of(op)
        at, what = -1, ""
        if tagged(name, "distinct"):
            at, what = _large(run, number), "keys that are whole numbers"
        elif name in _SEARCHED and len(op.inputs) > _SEARCHED[name]:
            at, what = _merged(run, op.inputs[_SEARCHED[name]].producer, measured), "the limits of intervals"
        line = run.place(op).stack[:1]
        if at >= 0 and line not in seen:
            seen.add(line)
            yield _finding(run, at, op, what, measured.get(at))


def _large(run: Run, number: int) -> int:
    """The op whose whole numbers are so large that their dtype skips some, -1 for none: what it is computed from are
    smaller whole numbers."""
    made = run.ops[number].inputs[0].producer if run.ops[number].inputs else -1
    while made >= 0 and is_move(run.ops[made]) and run.ops[made].inputs:
        made = run.ops[made].inputs[0].producer
    if made < 0 or not run.ops[made].outputs or run.ops[made].outputs[0] not in REAL:
        return -1
    most = 2.0 ** DTYPES[run.ops[made].outputs[0]].digits
    if not tagged(run.ops[made], *_COMBINE) or run.peaks.get(made, 0.0) <= most:
        return -1
    waiting, seen = [made], set[int]()
    whole = False
    while waiting and len(seen) < _FAR:
        at = waiting.pop()
        if at < 0 or at in seen:
            continue
        seen.add(at)
        op = run.ops[at]
        if tagged(op, "whole") or is_cast(op) and op.inputs and op.inputs[0].dtype not in REAL:
            if run.peaks.get(at, 0.0) > most:
                return -1
            whole = True
        elif is_move(op) or tagged(op, *_COMBINE):
            waiting += [i.producer for i in op.inputs]
    return made if whole else -1


def _merged(run: Run, made: int, measured: dict[int, Precision]) -> int:
    """The op that made neighbours equal among the numbers that were handed on to a search, -1 for none."""
    for _ in range(_FAR):
        if made < 0 or not run.ops[made].inputs:
            return -1
        op, p = run.ops[made], measured.get(made)
        if op.outputs[0] in HALF and not is_move(op) and p is not None and p.merged >= _MERGED:
            return made
        if not is_cast(op) and not is_move(op):
            return -1
        made = op.inputs[0].producer
    return -1


def _finding(run: Run, made: int, op: Op, what: str, p: Precision | None) -> Finding:
    maker = run.ops[made]
    dtype, place = maker.outputs[0], run.place(op)
    event = event_of_output(run, made) if dtype in HALF else -1
    culprit = made_operand(run, maker, dtype, event)
    if event < 0:  # float32 is nobody's decision
        culprit = at_op(run, maker, culprit)
    lost = (
        f"{p.merged:.0%} of them are equal to the next one in {dtype}"
        if p is not None and p.merged >= _MERGED and dtype in HALF
        else f"they reach {run.peaks.get(made, 0.0):.3g}, and {dtype} holds all whole numbers only to "
        f"{2 ** DTYPES[dtype].digits:,}"
    )
    wide = "float32" if dtype in HALF else "int64 or float64"
    said = f"{quoted(op.op)} treats equal numbers as one number"
    ends = FlowStep(place, op.op, op.module, dtype, dtype, "value", said=said)
    code, kind = ("DT204", "downcast") if dtype in HALF else ("DT308", "precision-loss")
    return silent_finding(
        code,
        kind,
        At.of(op, place),
        severity="warning",
        operands=(culprit,),
        flow=flow_to(run, maker, event, ends),
        fix=Fix("dtype", run.place(maker), (), False, f"make these numbers in {wide}", ()),
        count=op.count,
        title=f"{what} become equal in {dtype}, and {quoted(op.op)} cannot tell them apart",
        notes=(lost,),
    )
