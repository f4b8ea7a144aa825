"""Silent downcasts (DT203): a write narrowed wider values, because its destination keeps its dtype.

A program's own casts are not reported. But a write casts silently: ``x += y``, ``buffer[i] = y``, ``copy_``,
``load_state_dict``. It is a warning in four situations: the destination is narrower than the dtype that the model and
autocast compute in; many calls add increments to it, and each increment loses what the sum cannot represent; what
is stored is subtracted later, and the difference is mostly rounding; a load narrowed weights that are widened again
later, with their digits lost. It is a note where a destination with the right
dtype stores a value once, and where the engine casts a gradient to the dtype of its value.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

from .. import graph
from ..records import Finding, Fix, FlowStep, Input, Op, Operand, Place, Reach
from ..source import editing
from ..tables.dtypes import FLOATING, HALF, REAL, narrower, wider
from ..tables.english import quoted
from ..tables.operators import destination, is_cast, is_move, name_of, result_bytes, tagged, writes
from . import averages
from .advice import advise
from .case import short
from .checks import born_otherwise
from .run_facts import Run
from .silent_findings import At, found_at, silent_finding

_ROUNDING = 0.25
"""The share of a difference that is rounding, from which on it says little."""
_COUNTS = frozenset({"int32", "int64"})
"""What is counted in these soon grows beyond the integers that a half dtype holds: up to 256 in bfloat16, up to 2,048
in float16."""


def find(run: Run) -> list[Finding]:
    """One finding for each destination into which a line wrote narrowed values, and one for the gradients that the
    engine cast."""
    found: dict[tuple[object, ...], Finding] = {}
    for number, op in enumerate(run.ops):
        f = _written(run, number, op) if writes(op) else None
        if f is not None and f.culprit is not None:
            key = f.severity, f.site.stack[:1], f.culprit.origin.place.stack[:1]
            known = found.get(key)
            found[key] = f if known is None else _merged(known, f)
    return [*found.values(), *_by_the_engine(run)]


def _merged(one: Finding, other: Finding) -> Finding:
    first, second = one.reach or Reach(0, 0, 0), other.reach or Reach(0, 0, 0)
    reach = Reach(first.ops + second.ops, 0, first.bytes + second.bytes)
    return replace(one, count=one.count + other.count, reach=reach)


def _written(run: Run, number: int, op: Op) -> Finding | None:
    at, index = destination(op), _wide_value(op)
    # an optimizer's writes to weights and its own state are judged by their effect
    if op.phase in ("backward", "optimizer") or index < 0:
        return None
    target, value = op.inputs[at], op.inputs[index]
    expected = _of_the_written(run, op) if target.holder == "parameter" else run.dominant(op)
    master = _was_narrow(run, op, index)
    followed = _named(run, target) and _of_itself(run, target, value)
    why = _harm(run, number, target, expected, master=master, followed=followed)
    counts = value.dtype not in REAL
    place = run.place(op)
    written, source = run.operand(op, at, expected), run.operand(op, index, expected)
    gathered = target.dtype == run.gathered and source.origin.kind == "parameter"
    if _copy_of_weights(run, op, target, value) or _own_memory(run, op, target) or _masks(run, op, value):
        return None
    if not why and (counts or master or gathered or followed):
        return None  # a count, how master copies are copied back and FSDP's are made, or a mean that is kept so
    if (counts or _of_itself(run, target, value) or _grew(run, number, target)) and _stands_still(run, number):
        return None  # a counter, a sum or an average: too narrow for what it keeps, whatever is added to it (DT307)
    flow = graph.flow(run.recording, target.event, expected)
    births = {target.event: value.dtype} if value.dtype in REAL else {}
    if (like := run.made_like(target, expected)) is not None:
        written, births = replace(written, origin=like), {}
        flow = (FlowStep(like.place, like.op or "", op.module, target.dtype, target.dtype, "value"),)
    fine = f"{quoted(written.shown)} has the dtype that {_whose(run, op)}, so the values would be cast here anyway"
    return found_at(
        run,
        op,
        "DT203",
        written,
        born_otherwise(run, _fix(run, written, target.event, value.dtype, place), births),
        begins=flow,
        source=value.dtype,
        made=target.dtype,
        how="copy",
        severity="warning" if why else "note",
        operands=(written, source),
        notes=(why or fine,),
        reach=Reach(op.count, 0, result_bytes(op) * op.count),
    )


def _copy_of_weights(run: Run, op: Op, target: Input, value: Input) -> bool:
    """Whether whole weights are stored in a tensor that the program made narrow by its own word: a copy for an actor, a
    rollout or a server. The weights keep their digits; those that were cloned for a checkpoint may be all there are."""
    return _named(run, target) and tagged(op, "store") and value.holder is not None and run.weight_of(value)


def _named(run: Run, target: Input) -> bool:
    """Whether the program named the dtype in which it keeps a tensor."""
    event = run.recording.events[target.event] if target.event >= 0 else None
    return event is not None and event.explicit and event.how in ("cast", "factory")


def _own_memory(run: Run, op: Op, target: Input) -> bool:
    """Whether a function of torch's writes to memory that it has just made: as autocast casts the weights of cuDNN's
    recurrent layers."""
    event = run.recording.events[target.event] if target.event >= 0 else None
    return event is not None and (event.op, event.place) == (op.op, op.place)


def _masks(run: Run, op: Op, value: Input) -> bool:
    """Whether a write multiplies by truth values that were cast: each number stays or becomes zero, in any dtype."""
    made = graph.unmoved(run.ops, value.producer)
    cast = run.ops[made] if made >= 0 else op
    return tagged(op, "product") and is_cast(cast) and cast.inputs[:1] != () and cast.inputs[0].dtype == "bool"


def _wide_value(op: Op) -> int:
    """Index of the operand that a write narrows; -1 where it narrows none."""
    at = destination(op)
    target = op.inputs[at]
    if target.dtype not in REAL:
        return -1
    others = [(n, i) for n, i in enumerate(op.inputs) if n != at and (i.shape or not target.shape)]
    wide = (n for n, i in others if i.dtype in REAL and wider(i.dtype, target.dtype))
    stored = target.dtype in HALF and not tagged(op, "store")
    stored = stored and not any(i.dtype in FLOATING for _, i in others)  # beside a floating value, integers are indices
    counts = (n for n, i in others if stored and i.dtype in _COUNTS)
    return next(wide, next(counts, -1))


def _of_itself(run: Run, target: Input, value: Input) -> bool:
    """Whether a value was computed from the tensor to which it is written: an average moves a share of its way."""
    operands = run.ops[value.producer].inputs if value.producer >= 0 else ()
    above = graph.ops_above(run.ops, [i.producer for i in operands], most=_NEAR)
    return target.producer >= 0 and target.producer in above


_NEAR = 16
"""Ops above a value that are searched for the tensor to which it is written."""


def _stands_still(run: Run, number: int) -> bool:
    """Whether it was measured that what an op adds to does not change as it should."""
    v = run.values.get(number)
    return v is not None and averages.stands_still(run, v)


def _by_the_engine(run: Run) -> list[Finding]:
    """The engine's casts of gradients where the program neither cast nor promoted in forward: a backward returned
    another dtype."""
    casts = [op for op in run.ops if op.phase == "backward" and is_cast(op) and op.of >= 0 and _unmirrored(run, op)]
    if not casts:
        return []
    op = max(casts, key=lambda o: result_bytes(o) * o.count)
    forward, place = run.ops[op.of], run.place(op)
    gradient, made = run.operand(op, 0, op.outputs[0]), op.outputs[0]
    count = sum(o.count for o in casts)
    lines = len({run.place(o).stack[:1] for o in casts})
    notes = [
        f"the backward of {quoted(forward.op)} gave a {gradient.dtype} gradient for a {made} tensor: "
        "autograd casts it silently"
    ]
    if lines > 1:
        notes.append(f"the same happens for {lines - 1} more line{'s' if lines > 2 else ''}")
    ends = FlowStep(place, "the engine", op.module, gradient.dtype, made, "copy")
    at = gradient.origin.place if gradient.origin.place.stack else place
    return [
        silent_finding(
            "DT203",
            At(place, "backward", forward.op, op.aten, op.module),
            severity="note",
            culprit=gradient,
            flow=(*graph.flow(run.recording, op.inputs[0].event, made), ends),
            fix=advise(at, f"give the gradient in {made}", kind="cast"),
            count=count,
            notes=notes,
            reach=Reach(count, 0, sum(result_bytes(o) * o.count for o in casts)),
        )
    ]


def _unmirrored(run: Run, op: Op) -> bool:
    """Whether a gradient was narrowed although forward neither widened the value there nor mixed dtypes, nor ran only
    because healing cast an operand."""
    forward = run.ops[op.of]
    if any(r.healed and (r.place, r.module) == (forward.place, forward.module) for r in run.recording.refused):
        return False
    narrowed = op.inputs and {op.inputs[0].dtype, op.outputs[0]} <= REAL and wider(op.inputs[0].dtype, op.outputs[0])
    if forward.autocast or not narrowed:
        return False
    took, gave = {i.dtype for i in forward.inputs if i.dtype in REAL}, {d for d in forward.outputs if d in REAL}
    if is_cast(forward):  # a custom function's node is known by the first op inside it
        return op.inputs[0].dtype not in gave
    return len(took | gave) == 1


def _whose(run: Run, op: Op) -> str:
    return f"{run.root(op.module)} computes in" if run.holds(op.module) else "the run computes in"


def _of_the_written(run: Run, op: Op) -> str:
    """The dtype of most of what the same line writes into: a load fills a whole model, whose weights should agree."""
    sizes: Counter[str] = Counter()
    for other in run.ops:
        if other.place == op.place and writes(other):
            target = other.inputs[destination(other)]
            sizes[target.dtype] += prod(target.shape) * other.count if target.dtype in REAL else 0
    return sizes.most_common(1)[0][0]


def _was_narrow(run: Run, op: Op, index: int) -> bool:
    """Whether the wide value is a widened copy of narrow ones, as master weights are, or one that an optimizer trains:
    its digits stay where they are.

    What was computed from such a copy is new, unless it is a weight's own next value.
    """
    value, target = op.inputs[index], op.inputs[destination(op)]
    made = run.ops[value.producer] if value.producer >= 0 else None
    if target.holder == "parameter" and made is not None and made.phase == "optimizer" and not is_cast(made):
        return True
    line = graph.lineage(run.recording, value.event)
    copied = line is not None and line.root.how == "cast" and target.dtype in line.root.source
    return copied and (target.holder == "parameter" or not _computed(run, value))


def _computed(run: Run, value: Input) -> bool:
    """Whether a value was made by more than casts, moves and writes into itself."""
    for number in graph.first_operands(run.ops, value.producer):
        op = run.ops[number]
        if not (is_cast(op) or is_move(op) or destination(op) == 0) or not op.inputs:
            return True
        if is_cast(op):
            return False
    return False


def _harm(run: Run, number: int, target: Input, expected: str | None, *, master: bool, followed: bool) -> str:
    """What is lost beyond a single rounding; empty where nothing is. ``master``: the wide value is a master copy, which
    keeps its digits. ``followed``: each value is computed from the one before, in the dtype that the program named."""
    op = run.ops[number]
    if _adds(op) and _lasts(run, op, target):
        made = target.dtype
        return f"{op.count:,} calls add to the {made} tensor: {made} rounds away small additions to a large sum"
    if expected is not None and narrower(target.dtype, expected) and target.dtype not in run.autocasts and not followed:
        return f"everything else computes in {expected}: the digits are lost only here"
    if (difference := _difference(run, number)) is not None:
        user, error = difference
        at = f" ({short(run.place(user))})" if run.place(user).stack else ""
        return f"{quoted(user.op)}{at} takes a difference of what is stored: {error:.0%} of it is rounding"
    loaded = target.holder == "parameter" and not op.module and not master
    again = _widened_again(run, number, target.dtype) if loaded else None
    if again is not None:
        at = f" at {short(run.place(again))}" if run.place(again).stack else ""
        return f"it is widened to {again.outputs[0]} again{at}, but the lost digits do not come back"
    return ""


def _difference(run: Run, number: int) -> tuple[Op, float] | None:
    """The first op that subtracts what was stored, and is mostly its rounding, with that error; None for none."""
    errors = {p.op: p.total for p in (*run.recording.spot_checks, *run.recording.precisions) if not p.spoiled}
    op = run.ops[number]
    into = graph.unmoved(run.ops, op.inputs[max(destination(op), 0)].producer)  # it may be written through a view
    stored = [number] if into < 0 else [number, into]
    for user, _ in run.below(stored, run.moves):
        subtracts = tagged(run.ops[user], "difference") and tagged(run.ops[user], "sum")
        if subtracts and errors.get(user, 0.0) >= _ROUNDING:
            return run.ops[user], errors[user]
    return None


def _adds(op: Op) -> bool:
    """Whether a write changes what was there, instead of storing something new."""
    return not tagged(name_of(op).removeprefix("_foreach_"), "store") and destination(op) == 0


def _grew(run: Run, number: int, target: Input) -> bool:
    """Whether a sum that is no weight took what was added to it at first: what no call adds is lost in each store."""
    v = run.values.get(number)
    return v is not None and v.done > 0 and _adds(run.ops[number]) and not run.weight_of(target)


def _lasts(run: Run, op: Op, target: Input) -> bool:
    """Whether calls of an op add to one tensor repeatedly.

    A line that adds to many weights in turn, as when adapters are merged, may write each only once.
    """
    made = run.ops[target.producer] if target.producer >= 0 else None
    while made is not None and (writes(made) or is_move(made)) and made.inputs:  # `mean.mul_(d).add_(x)`
        above = made.inputs[max(destination(made), 0)].producer
        made = run.ops[above] if above >= 0 else None
    each = sum(p.dtype == target.dtype and p.event == target.event for p in run.recording.parameters)
    return op.count > max(each, 1) and (made is None or made.count < op.count)


def _widened_again(run: Run, number: int, dtype: str) -> Op | None:
    """The first op that widens what an op made."""
    users = (run.ops[n] for n in run.users[number])
    return next((user for user in users if is_cast(user) and wider(user.outputs[0], dtype)), None)


def _fix(run: Run, target: Operand, event: int, wanted: str, place: Place) -> Fix:
    origin = target.origin
    at = origin.place if origin.place.stack else place
    edit = editing.at_birth(run.recording, origin.kind, at, wanted) if origin.place.stack else None
    why = (
        f"give {quoted(target.shown)} dtype=torch.{wanted} where it is made"
        if origin.kind == "factory"
        else f"make {quoted(target.shown)} {wanted} where its dtype is decided"
    )
    openly = f"if {target.dtype} is intended, write the cast explicitly ({short(place)})"
    return advise(at, why, edits=edit, others=(openly,))
