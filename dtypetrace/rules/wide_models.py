"""Models, or parts of them, that compute in a wider dtype than anybody chose (DT201).

The model followed its data: it was cast to float64 because a batch is float64, and the batch is float64 because numpy's
default is. Nobody wrote that dtype down.

The cast missed a part: a model was cast to a half dtype, and modules that its own constructor made are not among its
registered ones (they are in a plain list or dictionary), so they stayed in float32 and compute in it. A part that was
made elsewhere, such as a frozen teacher, may be wide on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..records import FORWARD, Finding, FlowStep, Input, Op, Operand, Origin, Place
from ..tables.dtypes import HALF, REAL, wider
from ..tables.operators import flops
from .advice import advise
from .making import At, silent_finding
from .run_facts import Run, quantity, reach_of


def find(run: Run) -> Iterator[Finding]:
    """At most one finding for data that a model follows, and one for modules that a cast missed."""
    yield from _follows_data(run)
    yield from _missed(run)


# ---------------------------------------------------------------- a model that follows its data


def _follows_data(run: Run) -> Iterator[Finding]:
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
    return _finding(
        op,
        place,
        culprit,
        (*graph.flow(run.recording, event, None), end),
        ran,
        f"{root} computes in float64 because its data does",
        "make the data float32 where it is converted",
        f"{root} was cast to {read.written or 'the dtype of its data'}: nobody chose float64, which is numpy's default",
    )


# ---------------------------------------------------------------- modules that a cast missed


def _missed(run: Run) -> Iterator[Finding]:
    held = [p for p in run.recording.parameters if not p.beside]
    events = run.recording.events
    casts = {p.event for p in held if p.event >= 0 and p.dtype in HALF and events[p.event].how == "cast"}
    if not casts or any(p.dtype not in HALF for p in held):
        return
    # a model may compute in a wide dtype first, and be cast when it is trained: then its modules run in both
    reached = {op.module for op in run.ops if any(i.event in casts for i in op.inputs)}
    models = {run.root(module) for module in reached}
    ran: list[Op] = []
    weights: dict[int, Input] = {}
    for op in run.ops if reached else ():
        # a model that no cast reached at all, such as a frozen VAE, was left wide as a whole
        if op.module in reached or run.root(op.module) not in models:
            continue
        for i in op.inputs:
            made = i.event >= 0 and events[i.event].how == "parameter" and i.holder == "parameter" and i.dtype in REAL
            if made and op.phase in FORWARD and op.model >= 0 and wider(i.dtype, held[0].dtype):
                weights.setdefault(i.event, i)
                ran.append(op)
    constructors = _constructors(run, weights)
    for event, weight in weights.items():
        place = _within(run.recording.places[events[event].place], constructors)
        op = next(o for o in ran if any(i.event == event for i in o.inputs))
        if place is not None and op.outputs[:1] == (weight.dtype,) and flops(op):
            yield _of_modules(run, op, weight, place, ran, held[0].dtype)
            return


def _constructors(run: Run, missed: dict[int, Input]) -> frozenset[str]:
    """The constructors of modules that hold the model's registered weights, without those of the missed modules."""
    made = [
        (n, run.recording.places[e.place].stack) for n, e in enumerate(run.recording.events) if e.how == "parameter"
    ]
    own = {stack[0].function for n, stack in made if n in missed and stack}
    held = {frame.function for n, stack in made if n not in missed for frame in stack}
    return frozenset(name for name in held - own if name.endswith("__init__"))


def _within(place: Place, constructors: frozenset[str]) -> Place | None:
    """The line of such a function on which a weight was made, None where none of them made it."""
    for n, frame in enumerate(place.stack):
        if frame.function in constructors:
            return Place(place.stack[n:])
    return None


def _of_modules(run: Run, op: Op, weight: Input, made: Place, ran: list[Op], narrow: str) -> Finding:
    place, root = run.place(op), run.root(op.module)
    origin = Origin("parameter", weight.name, run.recording.events[weight.event].op, made)
    culprit = Operand(0, weight.name or "weight", weight.dtype, weight.shape, op.device, "parameter", origin)
    end = FlowStep(place, op.op, op.module, weight.dtype, op.outputs[0], "value", said=f"{root} is {narrow}")
    return _finding(
        op,
        place,
        culprit,
        (FlowStep(made, "", op.module, weight.dtype, weight.dtype, "value"), end),
        ran,
        f"modules that are not registered in {root} compute in {weight.dtype}",
        "put them into a ModuleList or ModuleDict, so that casts and moves of the model reach them",
        f"the cast of {root} to {narrow} did not reach them: they are not among its modules",
    )


def _finding(
    op: Op, place: Place, culprit: Operand, flow: tuple[FlowStep, ...], ran: list[Op], title: str, why: str, note: str
) -> Finding:
    reach = reach_of({id(o): o for o in ran}.values())
    work = f", {quantity(reach.flops, 'FLOP')} of matmul" if reach.flops else ""
    return silent_finding(
        "DT201",
        At.of(op, place),
        culprit=culprit,
        flow=flow,
        fix=advise(culprit.origin.place, why),
        count=op.count,
        title=title,
        notes=(note, f"{reach.ops:,} ops{work} and {quantity(reach.bytes, 'B')} of results ran in {culprit.dtype}"),
        reach=reach,
    )
