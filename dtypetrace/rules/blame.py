"""Who is to blame for numbers that an op damaged: the op itself, or the birth of the dtype in which it computed."""

from __future__ import annotations

from dataclasses import replace

from .. import graph
from ..records import FORWARD, FlowStep, Op, Operand, Origin, Place
from ..source import regions
from ..tables.dtypes import FLOATING, REAL, wider
from ..tables.operators import is_cast
from .run_facts import Run


def narrows(op: Op) -> bool:
    """Whether an op makes a narrower dtype than one that it takes."""
    made = op.outputs[0] if op.outputs else ""
    return made in REAL and any(wider(i.dtype, made) for i in op.inputs if i.dtype in REAL)


def event_of_output(run: Run, number: int) -> int:
    """The event that decided the dtype of an op's result: from an op that used it, else from its own place or
    operand. A gradient that the engine casts gets the dtype of the value that was cast in forward."""
    op = run.ops[number]
    made = op.outputs[0] if op.outputs else ""
    forward = run.ops[op.of] if op.phase == "backward" and op.of >= 0 and is_cast(op) else None
    given = next((i.event for i in forward.inputs if i.dtype == made and i.event >= 0), -1) if forward else -1
    if given >= 0:
        return given
    takers = (i for user in run.users[number] for i in run.ops[user].inputs if i.producer == number)
    taken = next((i.event for i in takers if i.dtype == made and i.event >= 0), -1)
    if taken >= 0:
        return taken
    here = next((n for n, s in enumerate(run.recording.events) if s.place == op.place and s.to == made), -1)
    if here >= 0:
        return here
    return next((i.event for i in sorted(op.inputs, key=lambda i: i.holder is None) if i.dtype == made), -1)


def made_operand(run: Run, op: Op, dtype: str, event: int) -> Operand:
    """An op's result. If a value was cast to a dtype that is right there, that cast is where it left its range."""
    origin = run.origin(event, run.dominant(op))
    return Operand(0, f"result of {op.op}", dtype, (), "", "gradient" if op.phase == "backward" else None, origin)


def outgrows(run: Run, number: int, dtype: str) -> bool:
    """Whether an op that lost values in its dtype is itself the place to change, and not the birth of that dtype.

    A cast that loses values, a weight that meets activations, and a stream of another dtype than the
    model's are mistakes of the birth. But where the program computes in a dtype as configured, in that of its weights
    or of an autocast region, an op on activations alone (a square in a norm, an epsilon, a scaled loss) is the cause:
    what goes into it fits.
    """
    op = run.ops[number]
    taken = [i for i in op.inputs if i.dtype in REAL]
    by_weight = len(taken) > 1 and any(run.weight_of(i) for i in taken)
    if is_cast(op) or narrows(op) or op.phase not in FORWARD or by_weight:
        return False
    configured = op.module and run.computes_in(number) or run.dominant(op)  # a loss has no weights
    return configured == dtype or _cast_with_model(run, op, dtype) or by_autocast(run, op, dtype)


def _cast_with_model(run: Run, op: Op, dtype: str) -> bool:
    """Whether an operand is a buffer that got its dtype with its model's weights."""
    events = {i.event for i in op.inputs if i.dtype == dtype and i.event >= 0}
    return bool(events & run.events_of_weights)


def by_autocast(run: Run, op: Op, dtype: str) -> bool:
    """Whether an autocast region decided the dtype in which an op computes: it runs there, or takes what was computed
    there."""
    if op.autocast.rpartition(":")[2] == dtype:
        return True
    events = (i.event for i in op.inputs if i.dtype == dtype and i.event >= 0)
    return any(run.origin(event, dtype).kind == "autocast" for event in events)


def at_op(run: Run, op: Op, culprit: Operand) -> Operand:
    """An op's result, born at the op."""
    return replace(culprit, origin=Origin("factory", None, op.op, run.place(op)))


def flow_to(run: Run, op: Op, event: int, site: Place) -> tuple[FlowStep, ...]:
    """The way of an op's dtype from its birth to where it does harm, without that."""
    steps = graph.flow(run.recording, event, run.dominant(op))
    known = (s for s in steps if s.place.stack and s.to in FLOATING)
    return tuple(s for s in known if s.place.stack[:1] != site.stack[:1])


def unscaled(run: Run, op: Op, made: Operand) -> Place | None:
    """The autocast region that decided what a backward op computes in, if it did. Then no cast of the program's is at
    fault: the region needs a loss scaler, or another dtype."""
    forward = run.ops[op.of] if op.phase == "backward" and op.of >= 0 else None
    if forward is None or made.origin.kind not in ("cast", "autocast") or op.outputs[0] not in run.autocasts:
        return None
    text = run.recording.text
    return regions.statement(text, run.place(forward)) or regions.statement(text, made.origin.place)
