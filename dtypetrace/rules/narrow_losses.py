"""A loss that is computed in 16 bits (DT308): one number into which everything is summed, with two or three digits.

torch's loss functions under autocast make it float32, whatever the model computes in. It is told where the program
narrowed what goes into it: then small changes of it do not show. Where autocast left it in 16 bits, or the whole
program is, that was chosen. The loss is what backward begins from; what is only printed may have any dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import floor, log2, prod

from .. import graph
from ..records import FORWARD, Finding, Fix, FlowStep, Input, Op
from ..source import editing
from ..tables.dtypes import DTYPES, HALF, REAL, wider
from ..tables.operators import COMPILED, NAMED_CASTS, is_cast, name_of
from .advice import advise
from .blame import event_of_output
from .checks import born_otherwise
from .making import At, silent_finding
from .run_facts import Run

_FEWEST = 8
"""Numbers that are summed: of fewer, the loss is as exact as each of them."""


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that computes a loss so."""
    seen: set[object] = set()
    for op in run.ops:
        if op.phase != "backward" or name_of(op) != "ones_like" or not op.inputs:
            continue
        number = _summed_in(run, op.inputs[0].producer)
        line = run.place(run.ops[number]).stack[:1] if number >= 0 else ()
        casts = _narrowed(run, number) if number >= 0 and line not in seen else []
        if casts and not _all_weights_in(run, run.ops[number].outputs[0]):
            seen.add(line)
            yield _finding(run, number, casts)


def _summed_in(run: Run, number: int) -> int:
    """The op that sums up a loss in 16 bits, -1 where none does, or where a part of the loss is wide."""

    def sums(op: Op) -> bool:
        return bool(op.outputs) and prod(op.shape) == 1 and op.phase in FORWARD

    def adds_up(op: Op) -> bool:
        # what is inside compiled code was not seen
        return op.aten != COMPILED and any(prod(i.shape) >= _FEWEST for i in op.inputs)

    def parts(op: Op) -> list[Input]:
        return [i for i in op.inputs if i.dtype in REAL] if sums(op) and not adds_up(op) else []

    found = [n for n in graph.ops_above(run.ops, [number], parts) if sums(run.ops[n]) and adds_up(run.ops[n])]
    return max(found, default=-1) if all(run.ops[n].outputs[0] in HALF for n in found) else -1


def _narrowed(run: Run, number: int) -> list[int]:
    """The program's own casts, outside of any model, of what is summed."""

    def widens(op: Op) -> bool:
        return is_cast(op) and bool(op.inputs) and wider(op.inputs[0].dtype, op.outputs[0])

    def narrow(op: Op) -> list[Input]:
        inside = op is not run.ops[number] and (widens(op) or run.holds(op.module))
        return [] if inside else [i for i in op.inputs if i.dtype in HALF]

    own = (n for n in graph.ops_above(run.ops, [number], narrow) if n != number and widens(run.ops[n]))
    casts = ((n, run.ops[n]) for n in own if run.ops[n].op in NAMED_CASTS and not run.holds(run.ops[n].module))
    return sorted(n for n, op in casts if graph.runs_own_line(run.recording, op))


def _all_weights_in(run: Run, made: str) -> bool:
    """Whether the whole program computes in a dtype: then its casts of data only follow its weights."""
    weights = {p.dtype for p in run.recording.parameters if p.dtype in REAL}
    return weights == {made}


def _finding(run: Run, number: int, casts: list[int]) -> Finding:
    op = run.ops[number]
    made, site, born = op.outputs[0], run.place(op), run.ops[casts[0]]
    culprit = replace(run.result(casts[0], None), written=run.operand(born, 0, None).written)
    cast = FlowStep(run.place(born), born.op, born.module, born.inputs[0].dtype, made, "cast")
    size = run.peaks.get(number, 0.0) if len(op.outputs) == 1 else 0.0
    apart = 2.0 ** floor(log2(size)) * DTYPES[made].eps if size else 0.0
    return silent_finding(
        "DT308",
        At.of(op, site),
        culprit=culprit,
        flow=(cast, FlowStep(site, op.op, op.module, made, made, "value", said=f"the loss is summed up in {made}")),
        fix=_fix(run, casts),
        count=op.count,
        title=f"the loss is computed in {made}, which keeps {DTYPES[made].digits} binary digits of it",
        notes=(f"near {size:.3g}, {made} numbers are {apart:.2g} apart: smaller changes of the loss do not show",)
        if apart
        else (),
    )


def _fix(run: Run, casts: list[int]) -> Fix:
    places = [run.place(run.ops[n]) for n in casts]
    edits = [editing.at_birth(run.recording, "cast", place, "float32") for place in places]
    found = tuple(dict.fromkeys(edit for edit in edits if edit is not None))
    fix = advise(places[0], "compute the loss in float32", "cast to that here, or not at all", edits=found)
    return born_otherwise(run, fix, {event_of_output(run, n): "float32" for n in casts})
