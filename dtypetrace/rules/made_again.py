"""Wide copies of narrow tensors that gather small changes, and are made again from what was stored (DT307).

An optimizer may keep its weights in float32 beside those in bfloat16 that the model computes with: each step changes
the wide copy, and its rounding is stored. That most steps change no number there is as it should be: they add up in the
copy. But where the copy is made again from what is stored, as when a job is resumed from the model's weights, all that
does not show there yet is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..records import FORWARD, Finding, FlowStep, Op, Operand, Origin, Value
from ..tables.english import quoted
from ..tables.operators import NAMED_CASTS, writes
from . import averages
from .advice import advise
from .mechanisms import LEAST_STEPS
from .run_facts import Run
from .silent_findings import found_at

_GATHERED = 4
"""The fewest changes that a copy gathers until it is made again, on average: with fewer, each step is judged."""
_MOVED = 0.25
"""How often a stored number changes until the copy is made again, on average: from there on, little of what the copy
gathers is gone."""
_NEAR = 16
"""Ops above a stored value that are searched for the cast that made the copy."""


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that stores such a copy."""
    for v in run.recording.values:
        op = run.ops[v.op]
        told = averages.stands_still(run, v)
        if v.kept >= 0 or not v.due or op.phase not in FORWARD or not writes(op) or told:
            continue
        cast = max((run.ops[n] for n in _made_again(run, v.op)), key=lambda o: o.count, default=None)
        if cast is None or not LEAST_STEPS <= cast.count <= op.count // _GATHERED:
            continue
        moved = v.done * op.count / v.due / cast.count
        if moved < _MOVED:
            yield _finding(run, op, v, cast, moved)


def _made_again(run: Run, store: int) -> list[int]:
    """The casts that widen what an op stored, on a line that made the copy of which it stores a rounding."""
    ops, (target, *stored) = run.ops, run.ops[store].inputs
    widens = lambda n: ops[n].op in NAMED_CASTS and ops[n].inputs[:1] and ops[n].inputs[0].dtype == target.dtype
    line = lambda n: (ops[n].op, run.place(ops[n]).stack[:1])
    begun = {n: line(n) for n in graph.ops_above(ops, [i.producer for i in stored], most=_NEAR) if widens(n)}
    still = lambda n: n == store or run.moves(n) or writes(ops[n])
    below = [n for n, _ in run.below([store], still) if widens(n) and line(n) in begun.values()]
    # in a loop, the cast is the same op: of what its operand was made later, the measurement knows
    return [*below, *(n for n in begun if store in run.measured_above(n))]


def _finding(run: Run, op: Op, v: Value, cast: Op, moved: float) -> Finding:
    low, wide, place = cast.inputs[0].dtype, cast.outputs[0], run.place(cast)
    origin = Origin("cast", None, cast.op, place, True)
    change = f"go on with the {wide} copy, and save it with the rest, instead of making it again"
    changes = f"{moved:.0%}" if moved else "none"
    return found_at(
        run,
        op,
        "DT307",
        Operand(0, f"result of {cast.op}", low, cast.shape, cast.device, None, origin),
        advise(place, change, f"{low} holds only a part of what it gathered"),
        begins=(FlowStep(place, cast.op, cast.module, low, wide, "cast", said=f"made again from {low} here"),),
        made=low,
        said=f"between two of those casts, {quoted(op.op)} changes {changes} of the numbers",
        title=f"a {wide} copy is made again from {low}, before what it has gathered shows there",
        notes=(f"the cast to {wide} ran {cast.count} times, and the copy was stored {op.count} times",),
    )
