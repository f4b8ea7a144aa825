"""Values that left the range of their dtype (DT301, DT302): what became infinite in it, and what was flushed to zero.

A problem begins at the first op that made an infinity or a NaN from finite operands. Its consequences show whether it
matters. An infinity that the program asked for, or that a later op removes (1 / inf), does no harm. A NaN does. So does
a root of an infinity: the root of a square that left its dtype's range would have fitted, as in a norm, where 1 / inf
erases a row. If gradients are checked before each step, by a loss scaler or by the program itself, infinities in
backward are how the scale of the loss is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from .. import graph
from ..records import FORWARD, Finding, FlowStep, Op, Operand, Value
from ..tables.dtypes import DTYPES, HALF, NARROW, REAL
from ..tables.english import listed, quoted
from ..tables.operators import is_cast, tagged
from . import titles
from .advice import advise
from .blame import Damaged, decided, event_born, event_of_output, flow_to, narrows
from .case import short
from .flows import feeds_pole
from .infinities import harm, unmeant
from .kept_wide import cast_wide, compute_wide, from_birth, keep_wide, scale_loss, wide_here
from .mechanisms import LEAST_STEPS
from .run_facts import Run
from .silent_findings import found_at

ROWS_LOST = 0.1
"""Share of a batch's entries; with a loss scaler that works, almost none are lost."""
_FEWEST = 32
"""Of fewer numbers, a few that become zero are a large share."""
_DROWNS = DTYPES["float16"].smallest / DTYPES["float16"].eps
"""Beside numbers of this size, what float16 flushes to zero is less than one step of its rounding."""
_FEW_CALLS = 2
"""Calls in which nearly everything that a state stores becomes zero: once may be the first step's."""
FORWARD_LOST = 0.5
"""Share of a forward cast's input, and of a batch's entries: small numbers among others are no loss."""
_MOST_ABOVE = 64
"""How many ops above such a function are examined: further up, what was flushed to zero did not stay zero."""
_NEAR_LIMIT = 6
"""How many ops above a function a limit that protects it is searched for."""


def find(run: Run) -> Iterator[Finding]:
    """Findings DT301 and DT302: the first value that went wrong, and gradients that were flushed."""
    made = (v for v in unmeant(run) if v.made)
    first = min(made, key=lambda v: v.first, default=None)
    if first is not None:
        first = _uppermost(run, first)
        first = replace(first, op=run.of_call(first.op))
    # what steps do to weights is judged separately (DT303)
    if first is not None and run.ops[first.op].phase != "optimizer":
        yield from _first_bad(run, first)
    emptied = [v for v in run.values.values() if not _at_a_floor(run, v)]
    flushed = [v for v in emptied if v.rows and _counts(run, v) and not _drowned(run, v)]
    yield from _flushed_states(run, emptied)
    if flushed:
        yield _flushed(run, flushed)


def _uppermost(run: Run, first: Value) -> Value:
    """The first op that made infinities, or one above it that did so in a later call: there, both are mended."""
    op = run.ops[first.op]
    above = graph.ops_above(run.ops, [i.producer for i in op.inputs], most=_MOST_ABOVE) if _narrow(op) else []
    known = (run.values[n] for n in sorted(above) if n in run.values and n < first.op)
    alike = (v for v in known if v.made > v.made_nan and run.ops[v.op].outputs == op.outputs)
    return next((v for v in alike if not is_cast(run.ops[v.op]) and not run.is_pole(v.op)), first)


def _flushed_states(run: Run, values: Iterable[Value]) -> Iterator[Finding]:
    """DT302: an optimizer keeps a value in float16, nearly all of which becomes zero as it is stored; or the program
    casts the optimizer's state, as for a checkpoint, and most of it becomes zero.

    What steps do to weights shows little of it: they may be too large as well as too small.
    """
    found: dict[tuple[object, ...], Finding] = {}
    for v in values:
        op = run.ops[v.op]
        if op.outputs[:1] != ("float16",) or not op.inputs or op.inputs[0].holder is not None:
            continue
        stores = op.phase == "optimizer" and (is_cast(op) or tagged(op, "store")) and _flushes(run, v)
        if not stores and (not _saved(run, op, v) or v.rows and _counts(run, v)):  # those are flushed casts
            continue
        kept = op.inputs[0]
        site, event = run.place(op), kept.event if kept.dtype == "float16" else event_of_output(run, v.op)
        culprit = Operand(0, f"what {op.op} stores", "float16", kept.shape, "", "state", run.origin(event, None))
        calls = stores and v.lost_calls >= _FEW_CALLS
        lost = f"in {v.lost_calls:,} calls nearly all" if calls else f"{v.flushed:,} of {v.nonzero:,}"
        said = f"{lost} numbers become zero: the smallest float16 is 6e-08"
        fix = advise(culprit.origin.place, "keep the optimizer's state in float32, or in bfloat16")
        begins = flow_to(run, op, event, site)
        dtypes = {"source": "float32", "made": "float16"}
        finding = found_at(run, op, "DT302", culprit, fix, begins=begins, **dtypes, how="copy", said=said)
        found.setdefault((culprit.origin.place.stack[:1], site.stack[:1]), finding)
    yield from found.values()


def _flushes(run: Run, v: Value) -> bool:
    """Whether what an optimizer stores becomes zero, in several calls nearly all of it; or a part of it by whose root
    the step divides."""
    return v.lost_calls >= _FEW_CALLS or v.flushed >= ROWS_LOST * max(v.nonzero, _FEWEST) and feeds_pole(run, v.op)


def _saved(run: Run, op: Op, v: Value) -> bool:
    """Whether a cast outside the optimizer makes most of what the optimizer's own ops made zero."""
    if op.phase not in FORWARD or not is_cast(op) or v.flushed < FORWARD_LOST * v.nonzero or not v.flushed:
        return False
    made = op.inputs[0].producer
    return made >= 0 and run.ops[made].phase == "optimizer"


def _counts(run: Run, v: Value) -> bool:
    op = run.ops[v.op]
    of_gradient = is_cast(op) and any(i.producer >= 0 and run.ops[i.producer].phase == "backward" for i in op.inputs)
    if op.phase in ("backward", "recompute"):
        return op.outputs[:1] != ("bfloat16",) and v.lost_rows >= ROWS_LOST * v.rows and not _vanishes_beside(run, v)
    if op.phase == "optimizer" or not op.outputs or op.outputs[0] not in NARROW - {"bfloat16"}:
        return False
    if v.emptied and is_cast(op) and run.weight_of(op.inputs[0]):
        return True
    rows = v.rows if of_gradient else v.lost_rows  # each number of a gradient moves one of a weight
    return rows >= FORWARD_LOST * v.rows and v.flushed >= FORWARD_LOST * v.nonzero


def _vanishes_beside(run: Run, v: Value) -> bool:
    """Whether all that became zero is less than float16 rounds off the largest number of the same gradient, and what
    the entries of a batch give is added up for the weights: those that are learnt have next to none. Of a parameter's
    own gradient, each number moves one of the weights."""
    used = any(run.ops[n].phase == "backward" for n in run.users[v.op])
    if (
        not used or not run.recording.updates or len(run.ops[v.op].outputs) > 1
    ):  # the peak of several results may be that of a weight's gradient
        return False
    kind = DTYPES["float16"]
    return v.flushed * kind.smallest <= kind.eps * v.peak


def _at_a_floor(run: Run, v: Value) -> bool:
    """Whether what is cast never rose above a lower limit that the narrow dtype flushes, as the scale of a block of
    zeros does: it stands for zero. Whether something divides by it is judged where that is done."""
    op = run.ops[v.op]
    made = graph.unmoved(run.ops, op.inputs[0].producer) if is_cast(op) and op.inputs else -1
    if made < 0 or not tagged(run.ops[made], "lower_bound"):
        return False
    return made in run.peaks and run.peaks[made] <= DTYPES[op.outputs[0]].smallest / 2


def _drowned(run: Run, v: Value) -> bool:
    """Whether what became zero was only to be added to gradients so large that rounding would have taken it anyway.

    At a fork, the engine casts the gradient of one branch and adds it to that of the other. What a mean takes away is
    such a gradient: its true value is zero, and only rounding is left of it.
    """
    users = [n for n in run.users[v.op] if run.ops[n].phase == run.ops[v.op].phase]
    sums = [run.values[n] for n in users if tagged(run.ops[n], "sum") and n in run.values]
    return bool(sums) and len(sums) == len(run.users[v.op]) and all(total.peak >= _DROWNS for total in sums)


# ---------------------------------------------------------------- infinities and NaN


def _first_bad(run: Run, first: Value) -> Iterator[Finding]:
    op = run.ops[first.op]
    does = harm(run, first)
    limit = _limit_above(run, first.op) if does is not None else None
    if limit is not None:
        yield _unlimited(run, limit, op)
        return
    if run.is_pole(first.op):
        zero = _flushed_above(run, first.op)
        if zero is not None:
            yield _pole(run, zero, op, does is not None)
            return
    if _narrow(op) and not (tagged(op, "pole") and first.made_nan == first.made):  # 0 / 0 leaves no range
        yield _overflow(run, first, (does,) if does else (), does is not None)
    elif does and _limits_added(run, op):
        joined = "join the masks before they become numbers (with `|`), or clamp their sum to torch.finfo(dtype).min"
        found = _overflow(run, first, (does,), True)
        yield replace(found, fix=advise(run.place(op), joined))


def _narrow(op: Op) -> bool:
    """Whether an op used a narrow dtype: it made float16, or cast to a narrower dtype."""
    return op.outputs[:1] == ("float16",) or narrows(op)


def _limits_added(run: Run, op: Op) -> bool:
    """Whether numbers near the dtype's limit are added, as two masks filled with the lowest number are: no dtype that
    the limit was taken from holds their sum."""
    largest = DTYPES[op.outputs[0]].largest if op.outputs[:1] and op.outputs[0] in REAL else inf
    near = [i for i in op.inputs if run.peaks.get(graph.unmoved(run.ops, i.producer), 0.0) >= largest / 2]
    return tagged(op, "sum") and len(near) > 1


def _overflow(run: Run, first: Value, notes: tuple[str, ...], harmful: bool) -> Finding:
    op = run.ops[first.op]
    made, cast, site = op.outputs[0], narrows(op), run.place(op)
    source = next((i.dtype for i in op.inputs if i.dtype in REAL), made)
    decision = decided(Damaged(run, first.op, made, event_born(run, first.op, made)))
    culprit = decision.culprit
    peak = max((run.values[i.producer].peak for i in op.inputs if i.producer in run.values), default=0.0)
    upto = f" (up to {peak:.3g})" if 0 < peak < inf else ""
    said = f"finite {source} goes in{upto}, infinity comes out: the largest {made} is {DTYPES[made].largest:.5g}"
    return found_at(
        run,
        op,
        "DT301",
        culprit,
        wide_here(run, first.op, site) if decision.itself else keep_wide(run, first.op, culprit, decision.event, cast),
        begins=decision.begins,
        source=source,
        how="cast" if cast else "value",
        said=said,
        severity="warning" if harmful else "note",
        count=first.made,
        notes=notes,
    )


def _flushed_above(run: Run, number: int) -> Value | None:
    """The values of the nearest op above, along the operands, in which numbers became zero only because the range is
    too small. That was seen in the program's values, or by a spot check."""
    checked = {p.op: p for p in run.recording.spot_checks}
    operands = [i.producer for i in run.ops[number].inputs]
    for above in graph.ops_above(run.ops, operands, most=_MOST_ABOVE):
        v = run.values.get(above)
        if v is not None and (v.flushed or v.vanished and not _is_limit(v)):
            return v
        p = checked.get(above)
        if v is not None and p is not None and p.flushed:
            return replace(v, flushed=round(p.flushed * p.elements))
    return None


def _is_limit(v: Value) -> bool:
    """Whether a number of Python's that was rounded away was a limit below 1."""
    return abs(v.vanished) > 0.5


def _limit_above(run: Run, number: int) -> Value | None:
    """The values of a limit just above an op that made infinities, if its dtype rounds the limit to 1 and numbers came
    out of it that are 1. A function with its pole at zero meets that pole only in a difference from 1."""
    op = run.ops[number]
    above = graph.ops_above(run.ops, [i.producer for i in op.inputs], most=_NEAR_LIMIT)
    found = next((run.values[n] for n in above if n in run.values and _is_limit(run.values[n])), None)
    if found is None or run.peaks.get(found.op) != 1.0:
        return None
    between = (n for n in above if n > found.op)
    return found if not run.is_pole(number) or any(tagged(run.ops[n], "sum", "difference") for n in between) else None


def _unlimited(run: Run, limit: Value, op: Op) -> Finding:
    """DT308: a limit that should keep numbers away from a pole, and is that pole in its dtype, to which the numbers
    that it limits were rounded, too."""
    limiting = run.ops[limit.op]
    dtype, site = limiting.outputs[0], run.place(limiting)
    given = graph.unmoved(run.ops, limiting.inputs[0].producer)
    made = given if given >= 0 and run.ops[given].outputs[:1] == (dtype,) else limit.op
    decision = decided(Damaged(run, made, dtype, event_of_output(run, made)))
    holds = f"use a limit that {dtype} can hold: its largest number below 1 is {1 - DTYPES[dtype].rounding:.9g}"
    wide = wide_here(run, made, run.place(run.ops[made])) if dtype in HALF else None
    return found_at(
        run,
        op,
        "DT308",
        decision.culprit,
        replace(wide, alternatives=(holds,)) if wide is not None else advise(site, holds),
        begins=(*decision.begins, FlowStep(site, limiting.op, limiting.module, dtype, dtype, "value", said=_LIMIT)),
        source=dtype,
        said=f"{quoted(op.op)} meets the 1 that should have been kept out: infinity or NaN comes out",
        title=f"{quoted(limiting.op)} keeps nothing below 1: its limit {limit.vanished:.9g} is rounded to 1 in {dtype}",
    )


_LIMIT = "the limit is rounded to 1 here"


def _pole(run: Run, zero: Value, op: Op, harmful: bool) -> Finding:
    """DT302: numbers that should not be zero, and the op that divides by them."""
    flushing = run.ops[zero.op]
    dtype = flushing.outputs[0]
    decision = decided(Damaged(run, zero.op, dtype, event_of_output(run, zero.op)))
    site, where = run.place(op), run.place(flushing)
    least = f"the smallest {dtype} is {DTYPES[dtype].smallest:.0e}"
    said = f"{zero.flushed:,} numbers become zero in {dtype}: {least}"
    if zero.vanished:
        said = f"{zero.vanished:g} is 0 in {dtype}: {least}"
    made = op.outputs[0] if op.outputs else dtype
    begins, elsewhere = decision.begins, where.stack[:1] != site.stack[:1]
    if elsewhere:
        begins = (*begins, FlowStep(where, flushing.op, flushing.module, dtype, dtype, "value", said=said))
    kept = run.used_as(zero.op) if is_cast(flushing) else ""
    values = f"values of {quoted(kept)}" if kept else "values"
    above = None if is_cast(flushing) else from_birth(run, decision.culprit, decision.event, [zero.op])
    larger = (f"use an epsilon that {dtype} can hold, such as 1e-6",) if zero.vanished else ()
    return found_at(
        run,
        op,
        "DT302",
        decision.culprit,
        above or compute_wide(run, zero.op, larger),
        begins=begins,
        source=dtype,
        made=made,
        said=f"{quoted(op.op)} meets the zero: infinity or NaN comes out",
        severity="warning" if harmful else "note",
        title=f"{quoted(op.op)} meets {values} that became zero in {dtype}" if flushing is not op else "",
        notes=() if elsewhere else (said,),
    )


# ---------------------------------------------------------------- gradients that vanish


def _flushed(run: Run, flushed: list[Value]) -> Finding:
    worst = min(flushed, key=lambda v: v.op)  # ops are numbered as they are met: the first is where it began
    op = run.ops[worst.op]
    backward = op.phase in ("backward", "recompute")
    decision = decided(Damaged(run, worst.op, op.outputs[0], event_of_output(run, worst.op)))
    culprit = replace(decision.culprit, written=run.used_as(worst.op) if op.phase in FORWARD else "")
    starved = _starved(run, worst) if backward else ""
    dtype = op.outputs[0]
    lost = f"{worst.lost_rows:,} of {worst.rows:,} numbers become zero in {dtype}"
    lost = f"in the gradient of this line's result, {lost}" if backward else lost
    source = op.inputs[0].dtype if op.inputs else ""
    said = f"{lost}, whose smallest number is {DTYPES[dtype].smallest:.0e}"
    return found_at(
        run,
        op,
        "DT305" if starved else "DT302",
        culprit,
        scale_loss(run, run.place(op), culprit) if backward else cast_wide(run, worst.op),
        begins=decision.begins,
        source=source,
        how="cast",
        said=said,
        count=worst.measured,
        title=f"the gradient of {starved} becomes zero in {dtype}" if starved else "",
        notes=_elsewhere(run, op, flushed),
    )


def _elsewhere(run: Run, first: Op, flushed: list[Value]) -> tuple[str, ...]:
    """Where else numbers become zero: by lines of the program, as far as they are others."""
    more = {(op.module, op.place): short(run.place(op)) for op in (run.ops[v.op] for v in flushed)}
    more.pop((first.module, first.place), None)
    lines = [line for line in dict.fromkeys(more.values()) if line and line != short(run.place(first))]
    if lines:
        rest = [f"{len(lines) - 3} more lines"] if lines[3:] else []
        return (f"the same happens at {listed([*lines[:3], *rest])}",)
    return (f"the same happens in {len(more)} more operations that this line calls",) if more else ()


def _starved(run: Run, v: Value) -> str:
    """The parameters whose whole gradient was zero in every step, where an op in backward made whole gradients zero;
    empty for none. One step shows little: the gradient of a LoRA's down matrix is rightly zero in the first."""
    names = [u.name for u in run.recording.updates if u.zero >= LEAST_STEPS and not u.steps]
    return titles.shared(names, len(names)) if v.emptied else ""
