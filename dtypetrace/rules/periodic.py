"""Large numbers that are reduced to a period, in float32, whose numbers are too far apart for that (DT204).

A remainder, a sine or a cosine uses only the last digits of its operand. Times of 1.7e9 seconds are 128 apart in
float32: their remainder by 300 has three different values. It is measured on samples (``capture.integers``). 16 bits
are judged as tables are: their numbers are this far apart at usual positions already.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..records import FORWARD, Finding, Fix, FlowStep, Op
from ..tables.english import quoted
from ..tables.operators import tagged
from .blame import flow_to
from .making import At, silent_finding
from .run_facts import Run

_MOSTLY = 0.5
"""Share of the operand's numbers that are too coarse."""
_DTYPE = "float32"


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that reduces such numbers."""
    seen: set[object] = set()
    for v in run.recording.values:
        op = run.ops[v.op]
        periodic = op.phase in FORWARD and tagged(op, "remainder", "angle")
        if not periodic or not v.spoilt or v.spoilt < _MOSTLY * v.exact:
            continue
        line = run.place(op).stack[:1]
        if line not in seen:
            seen.add(line)
            yield _finding(run, op)


def _finding(run: Run, op: Op) -> Finding:
    place, culprit = run.place(op), run.operand(op, 0, _DTYPE)
    name = quoted(op.op)
    said = f"{name} needs the last digits of its operand, and {_DTYPE} does not hold them above 16,777,216"
    exact = "float64 or in integers" if tagged(op, "remainder") else "float64"
    why = f"keep these numbers in {exact} until after {name}, or subtract the smallest of them first"
    ends = FlowStep(place, op.op, op.module, _DTYPE, _DTYPE, "value", said=said)
    return silent_finding(
        "DT204",
        "downcast",
        At.of(op, place),
        severity="warning",
        operands=(culprit,),
        flow=flow_to(run, op, op.inputs[0].event, ends),
        fix=Fix("dtype", culprit.origin.place if culprit.origin.place.stack else place, (), False, why, ()),
        count=op.count,
        title=f"{name} gets {_DTYPE} numbers that are too large for its period",
    )
