"""Models that compute in float64 because their data does (DT201).

The model was cast to float64 because a batch is float64, and the batch is float64 because numpy's default is. Nobody
wrote that dtype down.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..records import FORWARD, Finding, FlowStep, Op, Operand
from .advice import advise
from .making import At, silent_finding
from .run_facts import Run, quantity, reach_of


def find(run: Run) -> Iterator[Finding]:
    """At most one finding."""
    events = run.recording.events
    for number in dict.fromkeys(p.event for p in run.recording.parameters if p.dtype == "float64" and p.event >= 0):
        cast = events[number]
        copied = cast.how == "cast" and any(read.dtype == "float64" for read in cast.reads)
        if not copied or "float64" in cast.source:
            continue
        line = graph.lineage(run.recording, number)
        if line is None or line.root.how != "conversion" or line.root.explicit or line.root.to != "float64":
            continue
        ran = [o for o in run.ops if o.outputs[:1] == ("float64",) and any(i.holder == "parameter" for i in o.inputs)]
        first = next((o for o in ran if o.phase in FORWARD and o.module), None)
        if first is not None:
            yield _of_data(run, number, first, ran)
            return


def _of_data(run: Run, event: int, op: Op, ran: list[Op]) -> Finding:
    origin, place = run.origin(event, None), run.place(op)
    culprit = Operand(0, origin.name or "the data", "float64", (), op.device, None, origin)
    read = next(read for read in run.recording.events[event].reads if read.dtype == "float64")
    root = run.root(op.module)
    end = FlowStep(place, op.op, op.module, "float64", "float64", "value", said=f"all of {root} computes in float64")
    reach = reach_of({id(o): o for o in ran}.values())
    work = f", {quantity(reach.flops, 'FLOP')} of matmul" if reach.flops else ""
    asked = f"{root} was cast to {read.written or 'the dtype of its data'}"
    return silent_finding(
        "DT201",
        At.of(op, place),
        culprit=culprit,
        flow=(*graph.flow(run.recording, event, None), end),
        fix=advise(origin.place, "make the data float32 where it is converted"),
        count=op.count,
        title=f"{root} computes in float64 because its data does",
        notes=(
            f"{asked}: nobody chose float64, which is numpy's default",
            f"{reach.ops:,} ops{work} and {quantity(reach.bytes, 'B')} of results ran in float64",
        ),
        reach=reach,
    )
