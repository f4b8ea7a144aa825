"""Lost changes (DT307): averages, sums and counters in a narrow dtype that are updated repeatedly and do not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from math import prod

from .. import graph
from ..foresight import DtypeChange
from ..records import FORWARD, Finding, Fix, Input, Op, Operand, Origin, Place, Recording, Tried, Value
from ..source import copies, editing, expressions
from ..tables.dtypes import DTYPES, FLOATING, HALF
from ..tables.english import quoted
from ..tables.operators import is_cast, is_move, name_of, tagged, writes
from . import compensated, wide_weights
from .advice import TESTED, advise, without_diff
from .checks import born_otherwise, objection_of_text, refused_in
from .mechanisms import LEAST_MOVED, LEAST_STEPS, mechanism
from .run_facts import Run
from .silent_findings import found_at, result_of
from .training import birth

_COUNTER = "float32"
"""The dtype of the counters that are followed beside narrow tensors."""
_DRIFT = 0.03125
"""The error of a sum, relative to it: eight roundings of bfloat16, as those of a hundred additions."""


_DRIFT_IN_FLOAT32 = 2.0**-20
"""The same where later terms do not change a sum in float32: sixteen of its steps."""


def find(run: Run) -> list[Finding]:
    """One finding for each place where such a tensor's dtype was decided and each line that changes it."""
    found: dict[tuple[object, ...], Finding] = {}
    lost: list[tuple[Op, Value, Input]] = []
    low, kept = compensated.low_orders(run)
    for v in run.recording.values:
        op = run.ops[v.op]
        if is_cast(op):
            if v.due and op.count >= _MANY and _lost(run, v) and _judged(run, op, Input(op.outputs[0], shape=op.shape)):
                f = _of_stored(run, op, v)
                found.setdefault((f.site.stack[:3], f.site.file, f.site.line), f)
            continue
        target = next((i for i in op.inputs[v.kept :] if i.dtype in HALF or i.dtype == _COUNTER), None)
        if (
            target is not None
            and stands_still(run, v)
            and _judged(run, op, target)
            and _put_back(run, v.op)
            and not (v.op in low or target.event in kept or compensated.low_order(run, v.op))
            and (v.drift >= _DRIFT or not _streams(run.recording, op, v.kept))
            and not _fades(run, v)
        ):
            lost.append((op, v, target))
    for op, v, target in (*lost, *_never_decays(run)):
        f = _finding(run, op, v, target)
        origin = f.culprit.origin.place.stack if f.culprit else ()
        found.setdefault((origin[: 1 if origin and origin[0].user else 3], f.site.file, f.site.line), f)
    return list(found.values())


def _put_back(run: Run, number: int) -> bool:
    """Whether an op changes no tensor that was picked from another, or one that is put back, as in ``x[rows] += y``,
    again and again into the same."""
    op = run.ops[number]
    picked = run.ops[op.inputs[0].producer] if writes(op) and op.inputs and op.inputs[0].producer >= 0 else None
    if picked is None or not tagged(picked, "picks") or not picked.inputs:
        return True
    base = picked.inputs[0].producer
    made = next((n for n in graph.first_operands(run.ops, base) if not writes(run.ops[n])), -1)
    again = made < 0 or op.count > LEAST_STEPS * run.ops[made].count
    return again and any(writes(u) and u.inputs[0].producer == base for u in (run.ops[n] for n in run.users[number]))


def stands_still(run: Run, v: Value) -> bool:
    """Whether what an op changes does not change as it should, or drifts away from it: the roundings of many calls,
    each of which arrives, add up to an error that one call never has."""
    if v.kept < 0 and not _carried_on(run, run.ops[v.op]):
        return False
    if run.ops[v.op].outputs[:1] == (_COUNTER,):  # terms of a series that has converged are lost, too
        return _lost(run, v) and v.drift >= _DRIFT_IN_FLOAT32
    drifts = v.drift >= _DRIFT and run.ops[v.op].count > LEAST_STEPS
    return _lost(run, v) or drifts and not _is_answered(run, v)


def _is_answered(run: Run, v: Value) -> bool:
    """Whether what an op adds was computed from what it changes: as a step of an iteration that corrects itself, whose
    terms nearly cancel: more than a rounding of each call is no sum of roundings there."""
    op = run.ops[v.op]
    if not op.inputs or v.drift <= op.count * DTYPES[op.inputs[max(v.kept, 0)].dtype].rounding:
        return False
    kept = graph.first_operands(run.ops, op.inputs[max(v.kept, 0)].producer)
    state = set(
        takewhile(lambda n: not tagged(run.ops[n], "like"), kept)
    )  # zeros like a weight are none of its numbers
    added = [i.producer for n, i in enumerate(op.inputs) if n != max(v.kept, 0) and i.producer >= 0]
    return bool(state & {*graph.ops_above(run.ops, added, most=_ABOVE)})


_ABOVE = 64
"""How many ops above what is added are examined."""


def _fades(run: Run, v: Value) -> bool:
    """Whether an op makes a number smaller each time, and all that is computed from it is a difference that its
    roundings hardly change, such as one minus a power of a decay."""
    if _lost(run, v) or not tagged(run.ops[v.op], "scale", "product"):
        return False
    of = {p.op: p for p in (*run.recording.precisions, *run.recording.spot_checks)}
    below = [n for n, _ in run.below([v.op], lambda n: n == v.op or run.moves(n))]
    uses = [n for n in below if n != v.op and not run.moves(n)]
    slight = lambda n: tagged(run.ops[n], "difference") and n in of and of[n].total < _LITTLE
    return bool(uses) and all(map(slight, uses))


_LITTLE = 2.0**-6
"""An error of four roundings of bfloat16."""


def _lost(run: Run, v: Value) -> bool:
    """Whether fewer numbers changed than should have: in more calls than the first few, or in a weight, into which an
    adapter is merged once."""
    op = run.ops[v.op]
    return bool(v.due) and v.done < LEAST_MOVED * v.due and (op.count > LEAST_STEPS or _merges(run, op))


def _merges(run: Run, op: Op) -> bool:
    """Whether an op changes a weight in a few calls only, as the merge of an adapter does."""
    return op.count <= LEAST_STEPS and op.phase in FORWARD and bool(op.inputs) and run.weight_of(op.inputs[0])


def _judged(run: Run, op: Op, target: Input) -> bool:
    """An optimizer's own state is judged here only where it is narrower than all weights, or a single number: else what
    its steps do to the weights shows more."""
    weights = {p.dtype for p in run.recording.parameters} | {u.dtype for u in run.recording.updates}
    own = target.holder is None and weights and (target.dtype not in weights or not target.shape)
    return op.phase != "optimizer" or bool(own)


def _never_decays(run: Run) -> Iterator[tuple[Op, Value, Input]]:
    """Factors that are 1 in the dtype of the weights that they should decay, although all else that changes these
    arrives: all calls together should have made them much smaller."""
    meta, learns = run.recording.meta, dict[int, bool]()
    for u in run.recording.updates:
        learns[u.event] = learns.get(u.event, True) and mechanism(u).name == "healthy"
    for v in run.recording.values:
        op, calls, least = run.ops[v.op], run.ops[v.op].count, _DECAYED_MUCH
        if not v.factor or v.done or not op.inputs or op.phase == "backward":
            continue
        if op.phase == "optimizer":
            calls, least = int(meta.get("all_steps", meta.get("steps", 0))), _DECAYED
            if not learns.get(op.inputs[0].event, False) or not run.weight_of(op.inputs[0]):
                continue
        elif writes(op):  # measured
            continue
        if calls * abs(1 - v.factor) >= least and (writes(op) or _stored_back(run, v.op)):
            yield op, v, op.inputs[0]


_DECAYED, _DECAYED_MUCH = 0.0625, 0.5
"""How much smaller the weights should have become: less is little beside what moves them. Outside of an optimizer,
calls are counted that may each have another tensor."""


def _stored_back(run: Run, number: int) -> bool:
    """Whether what an op computes from a tensor is written to that tensor."""
    kept = lambda i: (graph.unmoved(run.ops, i.producer), i.event)
    stores = (
        w for w in run.ops if writes(w) and len(w.inputs) > 1 and kept(w.inputs[0]) == kept(run.ops[number].inputs[0])
    )
    return any(number in graph.ops_above(run.ops, [w.inputs[1].producer], most=_NEAR) for w in stores)


def _carried_on(run: Run, op: Op) -> bool:
    """Whether what is stored was computed from what is there, as a state is carried on: not weights, of which an
    optimizer may keep a wide copy."""
    target, *stored = op.inputs
    near = {*graph.ops_above(run.ops, [i.producer for i in stored], most=_NEAR)}
    again = lambda o: is_cast(o) and o.count >= op.count and any(i.event == target.event for i in o.inputs[:1])
    widened = any(again(run.ops[n]) for n in near)  # for each store: no copy is kept
    forward = widened or all(run.ops[n].phase in FORWARD for n in near)
    carried = op.phase in FORWARD and target.holder is None and forward and target.producer in near
    return carried and op.count >= _MANY


_NEAR = 16
"""Ops above a stored value that are searched for what is there."""
_MANY = 64
"""A state that has arrived where it goes is changed by very little, too, but not for long."""


def _streams(recording: Recording, op: Op, kept: int) -> bool:
    """Whether the value that an op adds to a tensor, to make a new one, was computed from that same tensor.

    This is a residual, or a step of a sampler; but not an average, which moves a share of the way to another tensor. A
    stream through the layers of a model does not drift; one that does has more steps than its dtype can carry.
    """
    if len(op.inputs) < 2 or kept > 1 or op.aten.partition(".")[0].endswith("_"):
        return False
    base, added = op.inputs[kept].producer, op.inputs[1 - kept].producer
    return not _towards(recording, base, added) and base in graph.ops_above(recording.ops, [added])


def _towards(recording: Recording, base: int, added: int) -> bool:
    """Whether what is added is a share of the distance to another tensor: a scaled difference."""
    while added >= 0 and tagged(recording.ops[added], "scale", "difference"):
        inputs = recording.ops[added].inputs
        if tagged(recording.ops[added], "difference"):
            return len(inputs) == 2 and any(i.producer == base for i in inputs)
        above = inputs[0].producer if inputs else -1
        added = above if above < added else -1
    return False


def _finding(run: Run, op: Op, v: Value, target: Input) -> Finding:
    dtype = target.dtype
    like = run.made_like(target, None)
    copied = _copied(run, target)
    followed = _followed(run, v.op, target)
    copy = Origin("factory", None, run.ops[copied].op, run.place(run.ops[copied])) if copied >= 0 else None
    origin = (
        like
        or run.asked_like(target)
        or _named(run, target)
        or copy
        or followed
        or run.origin(target.event, dtype, target.name or None)
    )
    entry = _entry(run, target) if op.phase == "optimizer" and not run.weight_of(target) else ""
    name = entry or target.name or origin.name or _kept(run, op, target) if "batch_norm" not in op.aten else ""
    called = quoted(name) if name else _without_name(run, op)
    culprit = Operand(0, name or called, dtype, target.shape, "", target.holder, origin)
    said = _said(run, op, v, target)
    if _merges(run, op):
        fix = _fix_of_merge(run, op)
    elif _of_engine(run, op):
        fix = _fix_of_gradient(run, op)
    elif copy is not None and origin is copy:
        fix = _fix_of_copy(run, copied, copy.place, *_advice(culprit, called))
    else:
        fix = _fix(run, target, culprit, called, made_like=like is not None)
    found = found_at(
        run,
        op,
        "DT307",
        culprit,
        fix,
        begins=birth(run.recording, target.event, origin, f"{dtype} is decided here") if origin != followed else (),
        made=dtype,
        said=said,
        title=_title(run, op, dtype, entry),
        notes=(
            f"{dtype} cannot change a number by less than {100 * DTYPES[dtype].rounding:.1g}% of it",
            *((_CORRECTIONS.format(name=quoted(entry)),) if entry and not target.shape else ()),
        ),
    )
    return replace(found, tried=_tried(run, op, v))


def _copied(run: Run, target: Input) -> int:
    """The op that copied a weight's numbers, from which on they are changed outside the model: whatever dtype suits the
    weight, the copy is none. -1 where they were no weight's, or were cast since."""
    copy = -1
    for n in graph.first_operands(run.ops, target.producer):
        op = run.ops[n]
        if not op.inputs or op.outputs[:1] != (target.dtype,):
            return -1
        copy = n if name_of(op) == "clone" else copy if is_move(op) else -1
        if op.inputs[0].holder == "parameter":
            return copy
    return -1


def _named(run: Run, target: Input) -> Origin | None:
    """The cast by which the program named a tensor's dtype last, though it had that dtype already: whatever came
    before, it would have this one."""
    event = run.recording.events[target.event] if target.event >= 0 else None
    if event is None or event.how != "attribute" or not event.explicit or event.to != target.dtype:
        return None
    return Origin("cast", None, event.op, graph.place_of(run.recording, event.place), True)


def _followed(run: Run, number: int, target: Input) -> Origin | None:
    """The line that adds up, where what is carried on took its dtype from what is added to it: a cast of that, which
    runs again for each addition and takes nothing that was added up. Whatever dtype suits what is added, the sum needs
    more digits."""
    event, op = run.recording.events[target.event] if target.event >= 0 else None, run.ops[number]
    if event is None or event.how != "cast" or not tagged(op, "sum") or writes(op):
        return None
    if not run.comes_back(number) or op.phase not in FORWARD:
        return None
    casts = [n for n, o in enumerate(run.ops) if o.place == event.place and is_cast(o) and o.outputs[:1] == (event.to,)]
    again = bool(casts) and sum(run.ops[n].count for n in casts) >= op.count
    if not again or any(number in run.measured_above(n) for n in (*casts, *graph.ops_above(run.ops, casts))):
        return None
    return Origin("factory", None, op.op, run.place(op))


def _of_stored(run: Run, op: Op, v: Value) -> Finding:
    """What was computed in float32 from what the same cast stored the time before (``capture.stored``)."""
    made, place, given = op.outputs[0], run.place(op), run.operand(op, 0, None).shown
    culprit = result_of(run, op)
    if made in HALF:
        fix = advise(place, "leave this cast out", f"keep {quoted(given)} in float32 from round to round",
                     edits=editing.uncast(run.recording, place))  # fmt: skip
        note = f"{made} cannot change a number by less than {100 * DTYPES[made].rounding:.1g}% of it"
    else:
        fix = advise(
            place, f"keep {quoted(given)} in float32 from round to round, and cast only what is shown or saved"
        )
        note = f"{made} cannot change a number by less than 1"
    if prod(op.shape) == 1:
        said = f"{v.due - v.done:,} of {v.due:,} calls lose most of what they should have changed"
    else:
        said = f"of {1 - v.done / v.due:.0%} of the numbers, most of what they should have changed by is rounded off"
    found = found_at(run, op, "DT307", culprit, fix, made=made, said=said, notes=(note,))
    return replace(found, tried=_tried(run, op, v))


def _tried(run: Run, op: Op, v: Value) -> Tried:
    """What each call would have changed without its rounding was computed beside it."""
    if v.factor and not v.done:
        return Tried(op.op, run.place(op), 1.0, 0.0, "still")
    still = (1 - v.done / v.due, 0.0, "still") if _lost(run, v) and not _is_full(op) else (v.drift, 0.0, "error")
    return Tried(op.op, run.place(op), *still)


_CORRECTIONS = "what the optimizer computes from {name}, such as its bias correction, stands still with it"


def _of_engine(run: Run, op: Op) -> bool:
    """Whether torch's engine adds to a gradient: a hook, or the backward of a hand-written function, names what it
    changes."""
    return op.phase == "backward" and not run.operand(op, 0, None).written


def _title(run: Run, op: Op, dtype: str, entry: str) -> str:
    """The title where the code's own does not say what is changed. ``entry``: the name in the optimizer's state."""
    if _of_engine(run, op):
        return f"gradients that add up in {dtype} lose the later ones"
    return f"small changes of {quoted(entry)}, in the optimizer's state, are rounded away in {dtype}" if entry else ""


def _entry(run: Run, target: Input) -> str:
    """The name that a tensor has in the optimizer's state, empty where it is not known."""
    states = (s for u in run.recording.updates for s in u.state)
    alike = (s.name for s in states if s.event == target.event >= 0 and s.dtype == target.dtype)
    return next(alike, "")


def _said(run: Run, op: Op, v: Value, target: Input) -> str:
    """What was lost: of a single number, the calls that left it as it was."""
    if v.factor and not v.done:
        return f"{v.factor:.7g} is 1 in {target.dtype}: {quoted(op.op)} makes no number smaller"
    if prod(target.shape) == 1 and v.done < v.due:
        still = f"{v.due - v.done:,} of {v.due:,} calls changed nothing"
        later = (n for n in run.users[v.op] if run.ops[n].inputs[0].producer == v.op)
        alone = not any(writes(run.ops[n]) for n in (target.producer, *later) if n not in (-1, v.op))
        return f"{still}: it stands still at {v.peak:g}" if v.peak and alone else still
    if _is_full(op):
        return f"{quoted(op.op)} adds to numbers that have become too large to change by what is added"
    if _lost(run, v):
        return f"{quoted(op.op)} changed only {v.done / v.due:.0%} of the numbers that it should change"
    return f"the roundings of all calls of {quoted(op.op)} add up to {v.drift:.0%} of the result"


def _fix_of_merge(run: Run, op: Op) -> Fix:
    """In words: the weights' dtype is right for all else that they do."""
    dtype = op.inputs[0].dtype
    why = f"merge into float32 weights, and cast to {dtype} only what is saved"
    return advise(run.place(op), why, others=("do not merge: add the adapter's result to the layer's",))


def _fix_of_gradient(run: Run, op: Op) -> Fix:
    """In words: the dtype of the weights decides that of their gradients."""
    change, how = "keep a float32 sum of the gradients", "after each backward, add .grad to it and set .grad to None"
    return advise(run.place(op), change, how, others=("keep the trained weights in float32, under autocast",))


def _kept(run: Run, op: Op, target: Input) -> str:
    """What a tensor without a name is called, as the program writes it; empty where it does not."""
    if _of_engine(run, op):
        return "the gradient"
    return run.operand(op, op.inputs.index(target), None).written


def _is_full(op: Op) -> bool:
    """Whether only numbers are judged that are too large for what is added: counts in float32."""
    counts = any(i.dtype not in FLOATING and i.shape for i in op.inputs[1:])
    return op.outputs[:1] == (_COUNTER,) and (counts or tagged(op, "adds_at"))


def _without_name(run: Run, op: Op) -> str:
    if "batch_norm" in op.aten:
        return "the running mean or variance"
    site = run.place(op).user_frame
    call = expressions.callee(run.recording.text, site) if site is not None else None
    return f"the tensor that {call or op.op}() changes"


def _fix(run: Run, target: Input, culprit: Operand, called: str, *, made_like: bool) -> Fix:
    """The tensor is made wide where its dtype was decided, if that decides no weight that is trained. ``called``: its
    name in a sentence."""
    origin, (change, why) = culprit.origin, _advice(culprit, called)
    trained = any(p.trained and p.event == target.event for p in run.recording.parameters)
    if trained and target.dtype in HALF:
        return _fix_of_weights(run, culprit, called)
    if made_like or trained or target.dtype == _COUNTER or not origin.place.stack:
        return advise(origin.place, change, why)
    edit = editing.at_birth(run.recording, origin.kind, origin.place, "float32")
    if edit is None and copies.would_share(run.recording, origin.place, "float32"):
        change += ", as a copy of its own"
    fix = advise(origin.place, change, why, edits=edit)
    return born_otherwise(run, fix, {target.event: "float32"})


def _fix_of_copy(run: Run, copied: int, place: Place, change: str, why: str) -> Fix:
    """The copy is made wide, and the weights that it was made of stay as they are."""
    fix = advise(place, change, why, edits=editing.at_own_line(run.recording, place, "float32"))
    replay = run.after(DtypeChange(results={copied: "float32"})) if fix.edits else None
    objection = replay and (objection_of_text(run.recording, fix.edits) or refused_in(replay))
    return without_diff(fix, objection) if objection else replace(fix, checked=TESTED if replay else ())


def _fix_of_weights(run: Run, kept: Operand, called: str) -> Fix:
    """For what took its dtype from the trained weights, or is one of them."""
    step = next((graph.place_of(run.recording, u.place) for u in run.recording.updates), None)
    change, lines = wide_weights.advice(run.recording, kept.origin, kept.dtype, step)
    takes = "" if kept.holder == "parameter" else f"{called} has the dtype of these weights"
    return advise(kept.origin.place, change, takes, kind="plan", lines=lines)


def _advice(kept: Operand, called: str) -> tuple[str, str]:
    if kept.dtype == _COUNTER:
        return f"count in torch.int64, or keep {called} in float64", ""
    return f"keep {called} in float32", "it is changed a little at a time"
