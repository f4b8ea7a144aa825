"""Values that left the range of their dtype: what became infinite in it, and what was flushed to zero.

The first op that made an infinity or a NaN out of finite operands is where it began. Whether it matters is told by what
came of it: an infinity that the program asked for, or that a later op takes back (1 / inf), does no harm; a NaN does, and
so does a root: that of a square which outgrew its dtype would have fitted it, as in a norm, where 1 / inf erases a row. In
a backward pass whose gradients are checked before each step, by a loss scaler or by the program itself, infinities are how
the scale of the loss is found.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import graph
from ..records import Finding, Fix, FlowStep, Op, Operand, Place, Recording, Value
from ..tables.codes import TITLES
from ..tables.dtypes import DTYPES, FLOATING, REAL, wider
from ..tables.operators import is_cast, is_move, name_of
from .plans import CHECKS
from .silent import FORWARD, Run

ROWS_LOST = 0.1
"""Of the entries of a batch; a loss scaler that does its work loses next to none."""
FORWARD_LOST = 0.5
_POLES = ("div", "true_divide", "reciprocal", "rsqrt", "log", "log2", "log10", "pow")
"""What is infinite at zero: there an operand that was flushed to zero does its harm."""
_UP = 64
_READS = ("_local_scalar_dense", "ones_like")
"""By the first a program reads a number, by the second the engine begins."""


def find(recording: Recording) -> Iterable[Finding]:
    """Findings DT301 and DT302: the first value that went wrong, and gradients that were flushed."""
    values = {v.op: v for v in recording.values}
    checked = scaled(recording)
    first = min(
        (v for v in values.values() if v.made and not (checked and recording.ops[v.op].phase in ("backward", "optimizer"))),
        key=lambda v: v.first, default=None,
    )  # fmt: skip
    if first is not None and (found := _first_bad(recording, values, first, checked)) is not None:
        yield found
    flushed = [v for v in values.values() if v.rows and _counts(recording.ops[v.op], v)]
    if flushed:
        yield _flushed(recording, flushed)


def scaled(recording: Recording) -> bool:
    """Whether gradients are checked before each step, by a loss scaler or by the program itself."""
    checks = any(op.aten.startswith(CHECKS) for op in recording.ops)
    return checks or any(refused.code == "DT116" for refused in recording.refused) or looked_at(recording)


def looked_at(recording: Recording) -> bool:
    """Whether steps were taken, and none with a gradient that was infinite or NaN: the program leaves such steps out."""
    return any(u.steps for u in recording.updates) and not any(u.broken_gradient for u in recording.updates)


def _counts(op: Op, v: Value) -> bool:
    if op.phase in ("backward", "recompute"):
        return v.lost_rows >= ROWS_LOST * v.rows
    return (
        op.phase != "optimizer"
        and op.outputs[:1] == ("float16",)
        and v.lost_rows >= FORWARD_LOST * v.rows
        and v.flushed >= FORWARD_LOST * v.nonzero
    )


# ---------------------------------------------------------------- infinities and NaN


def _first_bad(recording: Recording, values: dict[int, Value], first: Value, checked: bool) -> Finding | None:
    op = recording.ops[first.op]
    if op.phase == "optimizer":
        return None  # what steps do to weights is judged as a whole (DT303)
    after = [
        recording.ops[v.op]
        for v in values.values()
        if v.nans and not (checked and recording.ops[v.op].phase in ("backward", "optimizer"))
    ]
    rooted = _rooted(recording, values, first.op)
    harmful = bool(after) or rooted is not None or _stays(recording, values, first)
    zero = _flushed_above(recording, values, first.op) if op.op in _POLES or op.aten.split(".")[0] in _POLES else None
    if zero is not None:
        return _pole(recording, values[zero], op, harmful)
    made = op.outputs[0] if op.outputs else ""
    source = [i.dtype for i in op.inputs if i.dtype in REAL]
    cast = made in REAL and any(wider(s, made) for s in source)
    if made != "float16" and not cast:
        return None  # no narrow dtype had part in it
    step = step_of_output(recording, first.op)
    culprit = made_operand(recording, op, made, step)
    site = graph.place_of(recording, op.place)
    peak = max((values[i.producer].peak for i in op.inputs if i.producer in values), default=0.0)
    said = f"finite {source[0] if source else made} goes in{_of(peak)}, infinity comes out: {made} ends at {DTYPES[made].largest:.5g}"
    notes = []
    if after:
        notes.append(f"a NaN came of it first in {after[0].op}" + (f", {after[0].module}" if after[0].module else ""))
    elif rooted is not None:
        notes.append(f"{rooted.op} takes its root, which {made} could have held")
    return Finding(
        code="DT301", kind="overflow", severity="warning" if harmful else "note", title=TITLES["DT301"], phase=op.phase, op=op.op, aten=op.aten,
        module=op.module, count=first.made, predicted=False, site=site, operands=(culprit,), culprit=culprit,
        flow=flow_to(recording, op, step, FlowStep(site, op.op, op.module, source[0] if source else made, made, "cast" if cast else "value", said=said)),
        fix=keep_wide(recording, op, culprit, site, cast),
        exception=None, notes=tuple(notes),
    )  # fmt: skip


def keep_wide(recording: Recording, op: Op, culprit: Operand, site: Place, cast: bool) -> Fix:
    """Where a cast is the cause, it is what to change; where a float16 model computes as it was told to, the one op is."""
    if cast or culprit.dtype != _in_line(recording, op) or culprit.origin.place.stack[:1] == site.stack[:1]:
        scale = ("scale them down before they are cast",) if cast else ()
        return Fix(
            "dtype",
            culprit.origin.place,
            (),
            False,
            "keep these values in float32, or in bfloat16, whose range is as wide",
            scale,
        )
    return Fix(
        "dtype",
        site,
        (),
        False,
        f"cast to float32 what {op.op} takes here",
        ("let the model compute in bfloat16, whose range is as wide as float32's",),
    )


def _of(peak: float) -> str:
    return f" (up to {peak:.3g})" if peak else ""


def _stays(recording: Recording, values: dict[int, Value], first: Value) -> bool:
    """Whether an infinity is among what the run ended with: some op made it that no later op took in, or it came as far as
    what is printed, or what backward() starts from."""
    consumed = {i.producer for op in recording.ops for i in op.inputs}
    if any(v.bad and v.op not in consumed and v.first >= first.first for v in values.values() if v.made):
        return True
    if recording.ops[first.op].phase not in FORWARD:
        return False
    infinite, read, used = {first.op}, set(), set()
    for number, op in enumerate(recording.ops):
        above = {i.producer for i in op.inputs} & infinite
        if above and op.phase in FORWARD and (number in values and values[number].bad or is_move(op)):
            infinite.add(number)
        (read if name_of(op) in _READS else used).update(above if op.phase in FORWARD or name_of(op) in _READS else ())
    return bool(read - used)


def _rooted(recording: Recording, values: dict[int, Value], number: int) -> Op | None:
    """The first op that takes the root of an infinity which a float16 product made, as far as it is handed on as one."""
    infinite = {number}
    for n, op in enumerate(recording.ops[number + 1 :], number + 1):
        if any(i.producer in infinite for i in op.inputs) and op.phase in FORWARD:
            if name_of(op) in ("sqrt", "rsqrt"):
                return op
            if n in values and values[n].bad or (is_move(op) or is_cast(op)):
                infinite.add(n)
    return None


def _flushed_above(recording: Recording, values: dict[int, Value], number: int) -> int | None:
    """The nearest op above, along the operands, in which numbers became zero only for want of range."""
    waiting, seen = [i.producer for i in recording.ops[number].inputs], set()
    while waiting and len(seen) < _UP:
        above = waiting.pop(0)
        if above < 0 or above in seen:
            continue
        seen.add(above)
        v = values.get(above)
        if v is not None and (v.flushed or v.vanished):
            return above
        waiting += [i.producer for i in recording.ops[above].inputs]
    return None


def _pole(recording: Recording, zero: Value, op: Op, harmful: bool) -> Finding:
    """DT302: zeros that were no zeros, and what divides by them."""
    flushing = recording.ops[zero.op]
    dtype = flushing.outputs[0]
    step = step_of_output(recording, zero.op)
    culprit = made_operand(recording, flushing, dtype, step)
    site, where = graph.place_of(recording, op.place), graph.place_of(recording, flushing.place)
    least = f"the smallest {dtype} is {DTYPES[dtype].smallest:.0e}"
    said = (
        f"{zero.vanished:g} is 0 in {dtype}: {least}"
        if zero.vanished
        else f"{zero.flushed:,} numbers become zero in {dtype}: {least}"
    )
    ends = FlowStep(
        site,
        op.op,
        op.module,
        dtype,
        op.outputs[0] if op.outputs else dtype,
        "value",
        said=f"{op.op} meets the zero: infinity or NaN comes out",
    )
    middle = (
        ()
        if where.stack[:1] == site.stack[:1]
        else (FlowStep(where, flushing.op, flushing.module, dtype, dtype, "value", said=said),)
    )
    return Finding(
        code="DT302", kind="underflow", severity="warning" if harmful else "note", title=TITLES["DT302"], phase=op.phase, op=op.op, aten=op.aten,
        module=op.module, count=max(zero.flushed, 1), predicted=False, site=site, operands=(culprit,), culprit=culprit,
        flow=(*flow_to(recording, flushing, step, *middle, ends),),
        fix=Fix("dtype", where, (), False, "compute this in float32 and cast the result back", (f"use an epsilon that {dtype} can hold, such as 1e-6",) if zero.vanished else ()),
        exception=None, notes=(said,),
    )  # fmt: skip


# ---------------------------------------------------------------- gradients that vanish


def _flushed(recording: Recording, flushed: list[Value]) -> Finding:
    worst = min(flushed, key=lambda v: v.op)  # ops are numbered as they are met: the first is where it began
    op = recording.ops[worst.op]
    backward = op.phase in ("backward", "recompute")
    step = step_of_output(recording, worst.op)
    culprit = made_operand(recording, op, op.outputs[0], step)
    site = graph.place_of(recording, op.place)
    what = "the gradient" if backward else "what is cast"
    said = f"{worst.lost_rows:,} of {worst.rows:,} entries of {what} become zero in float16, whose smallest number is 6e-08"
    others = len({(recording.ops[v.op].module, recording.ops[v.op].place) for v in flushed}) - 1
    fix = (
        Fix(
            "plan",
            site,
            (),
            False,
            "scale the loss (torch.amp.GradScaler) so that its gradients fit float16",
            ("compute this part in bfloat16 or float32",),
        )
        if backward
        else Fix("dtype", site, (), False, "keep these values in float32, or scale them up before they are cast")
    )
    return Finding(
        code="DT302", kind="underflow", severity="warning", title=TITLES["DT302"], phase=op.phase, op=op.op, aten=op.aten, module=op.module,
        count=worst.measured, predicted=False, site=site, operands=(culprit,), culprit=culprit,
        flow=flow_to(recording, op, step, FlowStep(site, op.op, op.module, op.inputs[0].dtype if op.inputs else "", "float16", "cast", said=said)),
        fix=fix, exception=None, notes=(f"the same happens in {others} more places",) if others else (),
    )  # fmt: skip


# ---------------------------------------------------------------- what an op made


def step_of_output(recording: Recording, number: int) -> int:
    """The step that decided the dtype of what an op made: from an op that took it in, else from its own place or operand."""
    op = recording.ops[number]
    made = op.outputs[0] if op.outputs else ""
    for later in recording.ops:
        for i in later.inputs:
            if i.producer == number and i.dtype == made and i.step >= 0:
                return i.step
    here = next((n for n, s in enumerate(recording.steps) if s.place == op.place and s.to == made), -1)
    return (
        here
        if here >= 0
        else next((i.step for i in sorted(op.inputs, key=lambda i: i.holder is None) if i.dtype == made), -1)
    )


def made_operand(recording: Recording, op: Op, dtype: str, step: int) -> Operand:
    origin = graph.origin(recording, step, _in_line(recording, op))
    return Operand(0, f"result of {op.op}", dtype, (), "", "gradient" if op.phase == "backward" else None, origin)


def _in_line(recording: Recording, op: Op) -> str | None:
    """What was cast to the dtype of something in line left its range by that cast."""
    return Run(recording).dominant(op)


def flow_to(recording: Recording, op: Op, step: int, *ends: FlowStep) -> tuple[FlowStep, ...]:
    flow = tuple(s for s in graph.flow(recording, step, _in_line(recording, op)) if s.place.stack and s.to in FLOATING)
    return (*(s for s in flow if s.place.stack[:1] != ends[-1].place.stack[:1]), *ends)
