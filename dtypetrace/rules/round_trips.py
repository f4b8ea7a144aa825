"""Round trips (DT202): a value cast away and back, with nothing between that needed the other dtype.

Between the two casts there were only copies, views and joins: the same numbers came back, for the price of two casts
and twice the memory. A norm, a softmax or a loss in between is arithmetic, and then it is no round trip. Here, away
means to a wider dtype: a detour through a narrower dtype saves memory, and costs digits on purpose.
"""

from __future__ import annotations

import os

from .. import graph
from ..records import FORWARD, NO_CHANGE, Finding, Fix, Input, Op, Operand, Place, Reach
from ..source import editing
from ..tables.dtypes import REAL, wider
from ..tables.english import listed, quoted
from ..tables.operators import NAMED_CASTS, is_cast, is_move, name_of, result_bytes, tagged, writes
from .advice import advise
from .run_facts import Run, quantity
from .silent_findings import found_at

_Trips = list[tuple[int, int]]
"""Of one line's cast to the wider dtype: the number of that op, and of the op that casts back."""


def find(run: Run) -> list[Finding]:
    """One finding for each pair of lines. Of a cast that ran more often than what it made was cast back, the rest is
    used where only its first call would show it."""
    away = _parked(run)
    used = _used(run, away) | _trained(run, away)
    back: dict[int, list[int]] = {}
    trips: dict[tuple[object, ...], _Trips] = {}
    for number, op in enumerate(run.ops):
        begin = away.get(op.inputs[0].producer, -1) if op.inputs else -1
        if begin >= 0 and begin not in used and number not in away and _brings_back(run, op, begin):
            back.setdefault(begin, []).append(number)
    for begin, ends in back.items():
        if writes(run.ops[begin]) or sum(_brought(run, n, begin) for n in ends) >= run.ops[begin].count:
            trips.setdefault(run.place(run.ops[begin]).stack[:1], []).extend((begin, n) for n in ends)
    together: dict[tuple[object, ...], list[_Trips]] = {}
    for birth, pairs in trips.items():
        together.setdefault(_lines(run, *pairs[0]) or birth, []).append(pairs)
    return [_detour(run, values) for values in together.values()]


def _brought(run: Run, end: int, begin: int) -> int:
    """How many results of a cast an op casts back in all of its calls: a join brings several."""
    joined = 1
    for n in graph.first_operands(run.ops, run.ops[end].inputs[0].producer):
        if n == begin:
            break
        joined *= max(1, len(run.ops[n].inputs))
    return run.ops[end].count * joined


def _lines(run: Run, begin: int, end: int) -> tuple[object, ...]:
    """The user's lines of two casts: what one pair of lines casts there and back is one finding, like keys and values.

    Empty where one of them is not the user's, or where a write into a wider tensor is the first: each tensor is made
    elsewhere.
    """
    frames = [run.place(run.ops[number]).stack[:1] for number in (begin, end)]
    if writes(run.ops[begin]) or not all(frame and frame[0].user for frame in frames):
        return ()
    return tuple((frame[0].file, frame[0].line) for frame in frames)


def _brings_back(run: Run, op: Op, begin: int) -> bool:
    """Whether an op casts a value back to the dtype that it had before ``begin`` widened it.

    In backward, too, if the program casts by name: values that hooks on saved tensors keep come back there.
    """
    cast = is_cast(op) and (op.phase in FORWARD or op.op in NAMED_CASTS)
    return cast and op.outputs[:1] == (_value(run.ops[begin]).dtype,)


def _value(op: Op) -> Input:
    """The operand that a cast, or a write into a wider tensor, widened."""
    return op.inputs[1 if writes(op) else 0]


def _shelves(run: Run) -> dict[int, int]:
    """The empty tensors that only get narrow values, by copies -> the first such copy. Their views are written one by
    one."""
    blank: dict[int, int] = {}
    first: dict[int, int] = {}
    spoilt: set[int] = set()
    for number, op in enumerate(run.ops):
        if not op.inputs:
            if op.outputs and op.outputs[0] in REAL and tagged(op, "blank"):
                blank[number] = number
            continue
        shelf = blank.get(op.inputs[0].producer, -1)
        if shelf < 0:
            continue
        if writes(op):
            blank[number] = shelf
            first.setdefault(shelf, number)
            if not _widening_copy(op):
                spoilt.add(shelf)
        elif is_move(op) and len(op.inputs) == 1:
            blank[number] = shelf
    return {shelf: number for shelf, number in first.items() if shelf not in spoilt}


def _widening_copy(op: Op) -> bool:
    """Whether an op copies narrow numbers into a wider tensor."""
    if name_of(op) != "copy" or len(op.inputs) < 2:
        return False
    return op.inputs[1].dtype in REAL and wider(op.inputs[0].dtype, op.inputs[1].dtype)


def _parked(run: Run) -> dict[int, int]:
    """The ops that hold a widened value unchanged -> the cast that widened it."""
    away = _shelves(run)
    for number, op in enumerate(run.ops):
        if writes(op) and name_of(op) == "copy" and op.inputs[0].producer in away:
            away[number] = away[op.inputs[0].producer]
            continue
        real = [i for i in op.inputs if i.dtype in REAL]
        if not real or not op.outputs or op.phase not in FORWARD:
            continue
        if is_cast(op) and wider(op.outputs[0], real[0].dtype):
            if op.op in NAMED_CASTS:
                away[number] = number
        elif run.moves(number) and all(i.producer in away and i.dtype == op.outputs[0] for i in real):
            away[number] = away[real[0].producer]
    return away


def _used(run: Run, away: dict[int, int]) -> set[int]:
    """The casts whose wide values were used for anything except copies and the cast back."""
    used: set[int] = set()
    for number, op in enumerate(run.ops):
        for i in op.inputs if number not in away else ():
            begin = away.get(i.producer, -1)
            if begin < 0 or i.dtype != run.ops[begin].outputs[0]:
                continue
            back = is_cast(op) and op.outputs and op.outputs[0] == _value(run.ops[begin]).dtype
            if not back:
                used.add(begin)
    return used


def _trained(run: Run, away: dict[int, int]) -> set[int]:
    """The casts that made weights which are trained: their gradients add up in the wide dtype."""
    events = {p.event for p in run.recording.parameters if p.trained and p.event >= 0}
    computing = (op for op in run.ops if op.op not in NAMED_CASTS)
    taken = (i for op in computing for i in op.inputs if i.holder == "parameter" and i.event in events)
    return {away[i.producer] for i in taken if i.producer in away}


def _detour(run: Run, values: list[_Trips]) -> Finding:
    pairs = [pair for trips in values for pair in trips]
    begin, end = (run.ops[n] for n in pairs[0])
    calls = sum(run.ops[n].count for n in {b for b, _ in pairs})
    value, wide = _value(begin), begin.outputs[0]
    low = value.dtype
    away, culprit = run.operand(begin, begin.inputs.index(value), low), run.operand(end, 0, low)
    here = culprit.origin.place if writes(begin) else run.place(begin)
    automatic = end.op not in NAMED_CASTS
    # the user cannot remove a cast inside a library, even if the user's line casts back
    theirs = not writes(begin) and bool(here.stack) and not here.stack[0].user
    serious = not automatic and not theirs and value.holder is None and (calls > 1 or run.computed(value))
    ops = [run.ops[n] for n in {n for pair in pairs for n in pair}]
    reach = Reach(sum(o.count for o in ops), 0, sum(result_bytes(o) * o.count for o in ops if o.outputs[0] == wide))
    trips = f"{calls} round trip{'s' if calls != 1 else ''}, {quantity(reach.bytes, 'B')} held in {wide} on the way"
    notes = ["only copies and views lie between the two casts", trips]
    first = [run.ops[trips[0][0]] for trips in values]
    if others := [run.operand(op, op.inputs.index(_value(op)), low).shown for op in first[1:]]:
        notes.insert(1, f"the same lines cast {listed([quoted(other) for other in others])} to {wide} and back, too")
    if automatic:
        notes.append(f"autocast casts the value back for {quoted(end.op)}")
    if theirs:
        notes.append(f"the cast to {wide} is the library's own")
    return found_at(
        run,
        end,
        "DT202",
        culprit,
        _leave_out(run, first, end, culprit, here),
        begins=graph.flow(run.recording, end.inputs[0].event, low)[-1:],
        source=wide,
        made=low,
        how="cast",
        severity="warning" if serious else "note",
        operands=(away, culprit),
        count=calls,
        notes=notes,
        reach=reach,
    )


def _leave_out(run: Run, first: list[Op], end: Op, culprit: Operand, here: Place) -> Fix:
    """Both casts removed: the wide tensor is made narrow, or the widening casts of a line are removed."""
    begin = first[0]
    low, wide = end.outputs[0], begin.outputs[0]
    if writes(begin):
        found = [editing.at_birth(run.recording, culprit.origin.kind, here, low)]
    else:
        found = [editing.uncast(run.recording, run.place(op)) for op in first]
    edits = tuple(edit for edit in found if edit is not None)
    if len(edits) < len(found):
        edits = ()
    theirs = not writes(begin) and bool(here.stack) and not here.stack[0].user
    if len(edits) > 1:
        change, why = "leave these casts out", f"then the values stay {low}, and the later casts to {low} do nothing"
    elif edits and not writes(begin):
        change, why = "leave this cast out", f"then the value stays {low}, and the later cast to {low} does nothing"
    else:
        change, why = f"leave the value in {low}", "neither cast is needed"
        if writes(begin):
            change, why = f"make this tensor {low}", "then nothing is cast when it is written, nor when it is read"
        if theirs:
            automatic = end.op not in NAMED_CASTS
            back = "autocast casts back" if automatic else f"back; it may have an option for {low}"
            change, why = "nothing to change in your code", f"{_package(here)} casts to {wide}, and {back}"
    return advise(here, change, why, edits=edits, kind=NO_CHANGE if theirs and not edits else "cast")


def _package(place: Place) -> str:
    """The installed package that a library's line is in."""
    _, _, rest = place.file.rpartition(f"-packages{os.sep}")
    return rest.partition(os.sep)[0].removesuffix(".py") or "the library"
