"""Round trips (DT202): a value cast away and back, with nothing between that needed the other dtype; and weights that
are cast anew at each call (DT205), by the program or by autocast.

Between the two casts only copies, views and joins happened: the same numbers came back at the price of two casts and
twice the memory. A norm, a softmax or a loss in between is arithmetic, and no round trip. Away means to a wider dtype
here: a detour through a narrower one saves memory, and costs digits that somebody decided to spend.
"""

from __future__ import annotations

from .. import graph
from ..records import Finding, Fix, FlowStep, Input, Op, Reach
from ..source import editing
from ..tables.codes import TITLES
from ..tables.dtypes import REAL, wider
from ..tables.operators import NAMED_CASTS, flops, is_cast, is_move, name_of, result_bytes, writes
from .silent import FORWARD, Run, quantity

_OFTEN = 3
"""So many casts of one weight for each time that it can have changed are a habit."""


def find(run: Run) -> list[Finding]:
    return [*_detours(run), *_recast(run), *_uncached(run)]


# ---------------------------------------------------------------- away and back


def _detours(run: Run) -> list[Finding]:
    away = _parked(run)
    used = _used(run, away)
    trips: dict[tuple, list[tuple[int, int]]] = {}
    for number, op in enumerate(run.ops):
        # in backward too: what hooks on saved tensors park comes back there
        if is_cast(op) and op.inputs and op.outputs and (op.phase in FORWARD or op.op in NAMED_CASTS):
            begin = away.get(op.inputs[0].producer)
            if (
                begin is not None
                and begin not in used
                and number not in away
                and op.outputs[0] == _value(run.ops[begin]).dtype
            ):
                trips.setdefault(run.place(run.ops[begin]).stack[:1], []).append((begin, number))
    return [_detour(run, pairs) for pairs in trips.values()]


def _value(op: Op) -> Input:
    """What a cast, or a write into a wider tensor, widened."""
    return op.inputs[1 if writes(op) else 0]


def _shelves(run: Run) -> dict[int, int]:
    """The blank tensors that take narrow values only, by copies -> the first such copy. Its views are written one by one."""
    blank: dict[int, int] = {}
    first: dict[int, int] = {}
    spoilt = set()
    for number, op in enumerate(run.ops):
        if not op.inputs and op.outputs and op.outputs[0] in REAL and name_of(op) in ("empty", "zeros"):
            blank[number] = number
        elif op.inputs and op.inputs[0].producer in blank:
            shelf = blank[op.inputs[0].producer]
            if writes(op):
                narrow = (
                    name_of(op) == "copy"
                    and len(op.inputs) > 1
                    and wider(op.inputs[0].dtype, op.inputs[1].dtype)
                    and op.inputs[1].dtype in REAL
                )
                blank[number] = shelf
                first.setdefault(shelf, number)
                spoilt.update(() if narrow else (shelf,))
            elif is_move(op) and len(op.inputs) == 1:
                blank[number] = shelf
    return {shelf: number for shelf, number in first.items() if shelf not in spoilt}


def _parked(run: Run) -> dict[int, int]:
    """The ops that hold a widened value unchanged -> the cast that widened it."""
    away = _shelves(run)
    for number, op in enumerate(run.ops):
        if writes(op) and op.inputs[0].producer in away and name_of(op) == "copy":
            away[number] = away[op.inputs[0].producer]
            continue
        real = [i for i in op.inputs if i.dtype in REAL]
        if not real or not op.outputs or op.phase not in FORWARD:
            continue
        if is_cast(op) and wider(op.outputs[0], real[0].dtype):
            if op.op in NAMED_CASTS:
                away[number] = number
        elif (is_move(op) or is_cast(op)) and all(i.producer in away and i.dtype == op.outputs[0] for i in real):
            away[number] = away[real[0].producer]
    return away


def _used(run: Run, away: dict[int, int]) -> set[int]:
    """The casts whose wide values took part in anything but copies and the way back."""
    used = set()
    for number, op in enumerate(run.ops):
        if number not in away:
            for i in op.inputs:
                begin = away.get(i.producer)
                back = (
                    is_cast(op) and op.outputs and begin is not None and op.outputs[0] == _value(run.ops[begin]).dtype
                )
                if begin is not None and i.dtype == run.ops[begin].outputs[0] and not back:
                    used.add(begin)
    return used


def _detour(run: Run, pairs: list[tuple[int, int]]) -> Finding:
    begin, end = (run.ops[n] for n in pairs[0])
    calls = sum(run.ops[n].count for n in {b for b, _ in pairs})
    value = _value(begin)
    low, wide = value.dtype, begin.outputs[0]
    away_operand, culprit = run.operand(begin, begin.inputs.index(value), low), run.operand(end, 0, low)
    place = run.place(end)
    here = culprit.origin.place if writes(begin) else run.place(begin)
    automatic = end.op not in NAMED_CASTS
    # a library's own habit is nobody's to leave out, whoever brings its value back
    theirs = not writes(begin) and bool(here.stack) and not here.stack[0].user
    serious = not automatic and not theirs and value.holder is None and (calls > 1 or run.computed(value))
    ops = [run.ops[n] for n in {n for pair in pairs for n in pair}]
    reach = Reach(sum(o.count for o in ops), 0, sum(result_bytes(o) * o.count for o in ops if o.outputs[0] == wide))
    flow = (
        *graph.flow(run.recording, end.inputs[0].step, low)[-1:],
        FlowStep(place, end.op, end.module, wide, low, "cast"),
    )
    edit = (
        editing.at_birth(run.recording, culprit.origin.kind, here, low)
        if writes(begin)
        else editing.uncast(run.recording, here)
    )
    trips = f"{calls} round trip{'s' if calls != 1 else ''}, {quantity(reach.bytes, 'B')} held in {wide} on the way"
    notes = ["only copies and views lie between the two casts", trips]
    if automatic:
        notes.append(f"autocast makes the cast back, for {end.op}")
    if theirs:
        notes.append(f"the cast to {wide} is the library's own")
    why = (
        f"leave it in {low}: neither cast is needed"
        if not theirs
        else f"leave it in {low} where the library can be told to: neither cast is needed"
    )
    return Finding(
        code="DT202", kind="round-trip", severity="warning" if serious else "note", title=TITLES["DT202"], phase=end.phase, op=end.op,
        aten=end.aten, module=end.module, count=calls, predicted=False, site=place, operands=(away_operand, culprit), culprit=culprit, flow=flow,
        fix=Fix("cast", here, (edit,) if edit else (), True, why, ()), exception=None,
        notes=tuple(notes), reach=reach,
    )  # fmt: skip


# ---------------------------------------------------------------- the same weight, again


def _recast(run: Run) -> list[Finding]:
    """Weights that the program itself casts at each use, by the function that casts them."""
    chances = max(int(run.recording.meta.get("steps", 0)), 1)
    functions: dict[tuple | None, list[int]] = {}
    for number, op in enumerate(run.ops):
        cast = is_cast(op) and op.op in NAMED_CASTS and op.module and op.phase == "forward"
        if (
            cast
            and op.inputs
            and op.inputs[0].holder == "parameter"
            and op.inputs[0].dtype in REAL
            and op.count >= _OFTEN * chances
        ):
            frame = next(iter(run.place(op).stack), None)
            functions.setdefault((frame.file, frame.function) if frame else None, []).append(number)
    return [
        _again(run, numbers, chances) for numbers in functions.values() if any(_multiplied(run, n) for n in numbers)
    ]


def _multiplied(run: Run, number: int) -> bool:
    """Whether a weight's cast copy is a factor of a matmul or a convolution: elsewhere it is small change."""
    for user in run.users[number]:
        if flops(run.ops[user]) or is_move(run.ops[user]) and _multiplied(run, user):
            return True
    return False


def _again(run: Run, numbers: list[int], chances: int) -> Finding:
    op = max((run.ops[n] for n in numbers), key=result_bytes)
    ops = [run.ops[n] for n in numbers]
    reach = Reach(sum(o.count for o in ops), 0, sum(result_bytes(o) * o.count for o in ops))
    weight, to, place = run.operand(op, 0, op.outputs[0]), op.outputs[0], run.place(op)
    changed = (
        f"in {chances} optimizer step{'s' if chances != 1 else ''}"
        if run.recording.meta.get("steps")
        else "with no optimizer step between"
    )
    parameters = f"{len(ops)} parameter{'s were' if len(ops) != 1 else ' was'}"
    notes = (f"{parameters} cast {reach.ops} times {changed}: {quantity(reach.bytes, 'B')} written anew",)
    flow = (*graph.flow(run.recording, op.inputs[0].step, to), FlowStep(place, op.op, op.module, to, to, "cast"))
    return Finding(
        code="DT205", kind="round-trip", severity="warning", title=TITLES["DT205"], phase=op.phase, op=op.op, aten=op.aten, module=op.module,
        count=reach.ops, predicted=False, site=place, operands=(weight,), culprit=weight, flow=flow,
        fix=Fix("dtype", weight.origin.place if weight.origin.place.stack else place, (), False, f"cast it to {to} once, before the loop", ()),
        exception=None, notes=notes, reach=reach,
    )  # fmt: skip


def _uncached(run: Run) -> list[Finding]:
    """Weights that autocast casts at each use, since it keeps only casts that a gradient can flow through. One for each model.

    A frozen weight never changes, another may at each optimizer step. It is a warning where the casts wrote more bytes than
    all of the model's arithmetic gave, of weights that the run does not train: those are float32 on purpose.
    """
    steps = int(run.recording.meta.get("steps", 0))
    models: dict[str, list[int]] = {}
    for number, op in enumerate(run.ops):
        if op.uncached and op.op not in NAMED_CASTS and op.outputs and op.phase in FORWARD:
            if op.count >= _OFTEN * (max(steps, 1) if op.uncached == "inference" else 1):
                models.setdefault(run.root(op.module), []).append(number)
    return [
        _by_autocast(run, numbers, steps) for numbers in models.values() if any(_multiplied(run, n) for n in numbers)
    ]


def _by_autocast(run: Run, numbers: list[int], steps: int) -> Finding:
    op = max((run.ops[n] for n in numbers), key=result_bytes)
    ops = [run.ops[n] for n in numbers]
    reach = Reach(sum(o.count for o in ops), 0, sum(result_bytes(o) * o.count for o in ops))
    weight, to, place, given = run.operand(op, 0, op.outputs[0]), op.outputs[0], run.place(op), run.given(op.module)
    trained = {u.step for u in run.recording.updates} & {o.inputs[0].step for o in ops} and op.uncached == "inference"
    serious = not trained and reach.bytes > given and op.count >= _OFTEN * max(steps, 1)
    frozen = all(o.uncached == "frozen" for o in ops)
    why = "these are frozen" if frozen else "this is inference mode"
    notes = (
        f"{len(ops)} parameter{'s' if len(ops) != 1 else ''} cast {reach.ops:,} times: {quantity(reach.bytes, 'B')} written anew, "
        f"where the model's own arithmetic gave {quantity(given, 'B')}",
        f"autocast keeps the cast of a weight only where a gradient can flow through it, and {why}",
    )
    change = (
        f"it is trained, so it stays {weight.dtype}: for a long evaluation, cast a copy of the model to {to} once" if trained
        else f"cast the model's matrices to {to} once, before the loop, and leave autocast on for the rest"
    )  # fmt: skip
    flow = (
        *graph.flow(run.recording, op.inputs[0].step, to),
        FlowStep(
            place,
            op.op,
            op.module,
            weight.dtype,
            to,
            "autocast",
            said=f"autocast casts {weight.name} to {to} here, {op.count:,} times",
        ),
    )
    return Finding(
        code="DT205", kind="round-trip", severity="warning" if serious else "note", title=TITLES["DT205"], phase=op.phase, op=op.op, aten=op.aten,
        module=op.module, count=reach.ops, predicted=False, site=place, operands=(weight,), culprit=weight, flow=flow,
        fix=Fix("dtype", weight.origin.place if weight.origin.place.stack else place, (), False, change, ()), exception=None, notes=notes, reach=reach,
    )  # fmt: skip
