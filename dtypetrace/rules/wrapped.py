"""What is said of integers that wrap (DT301), and what to change: the arithmetic, where the program keeps 8 bits or
numbers that it had limited; else the line that put them into too few bits, or what they are written to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import graph
from ..foresight import DtypeChange
from ..records import Edit, Finding, Fix, FlowStep, Op, Operand, Origin, Tried, Value
from ..source import editing, operands
from ..tables.dtypes import REAL
from ..tables.english import quoted
from ..tables.operators import destination, is_cast, tagged, writes
from .advice import advise
from .checks import born_otherwise, sound
from .kept_wide import whole_wide
from .run_facts import FAR, Run
from .silent_findings import found_at

_NAMED = "cast", "factory"
"""Events by which a program names a dtype of 16 or 32 bits: no factory makes such integers by default."""


def inverted(run: Run, op: Op) -> Finding:
    """``~`` of what is 0 or 1 in integers, taken for a number."""
    flags = run.operand(op, 0, None)
    edit = editing.at_birth(run.recording, flags.origin.kind, flags.origin.place, "bool")
    fix = advise(flags.origin.place, f"make {quoted(flags.shown)} bool where it is made", edits=edit)
    said = f"`~` makes {_INVERTED.get(flags.dtype, '-1 and -2')} of 0 and 1 in {flags.dtype}"
    fix = born_otherwise(run, fix, {op.inputs[0].event: "bool"})
    begins = graph.flow(run.recording, op.inputs[0].event, None)
    title = f"`~` of {flags.dtype} flags is computed with as a number"
    return found_at(run, op, "DT301", flags, fix, begins=begins, made=flags.dtype, said=said, title=title)


_INVERTED = {"uint8": "255 and 254"}


def find(run: Run, v: Value, op: Op, *, keys: bool) -> Finding:
    """Integers outside the range of their dtype. ``keys``: whether the program tells things apart by them."""
    made, place = op.outputs[0], run.place(op)
    source = next((i.dtype for i in op.inputs if i.dtype in REAL), op.inputs[-1].dtype if is_cast(op) else made)
    origin = Origin("cast" if is_cast(op) else "factory", None, op.op, place)
    culprit = Operand(0, f"result of {op.op}", made, op.shape, op.device, None, origin)
    flow: tuple[FlowStep, ...] = ()
    fix = _here(run, v.op, source)
    # a dtype that holds the numbers, but not the negative of its least, is none that the program should have chosen
    named = (made in ("int16", "int32") or keys) and not tagged(op, "sign")
    if named and not is_cast(op) and (narrowed := _narrowed(run, op)) is not None:
        culprit = run.operand(op, narrowed, None)
        event = op.inputs[narrowed].event
        flow = graph.flow(run.recording, event, None)
        edit = editing.at_birth(run.recording, "cast", culprit.origin.place, "int64")
        words = f"make {quoted(culprit.shown)} int64 where it is {'cast' if culprit.origin.kind == 'cast' else 'made'}"
        fix = born_otherwise(run, advise(culprit.origin.place, words, edits=edit), {event: "int64"})
    elif (
        is_cast(op) and source not in REAL and (event := run.event_of(v.op)) >= 0 and run.recording.events[event].reads
    ):
        culprit = replace(culprit, origin=run.origin(event, None))  # whose dtype the cast reads
        flow = graph.flow(run.recording, event, None)
        edit = editing.at_birth(run.recording, culprit.origin.kind, culprit.origin.place, source)
        fix = advise(culprit.origin.place, f"make this tensor {source}: {op.op}() takes its dtype", edits=edit)
        fix = born_otherwise(run, fix, {event: source})
    elif writes(op) and (event := op.inputs[max(destination(op), 0)].event) >= 0:  # what is written to is too narrow
        culprit = run.operand(op, max(destination(op), 0), None)
        flow = graph.flow(run.recording, event, None)
        births = [event, *_in_turn(run, op, culprit)]
        places = [graph.place_of(run.recording, run.recording.events[n].place) for n in births]
        edits = [editing.at_birth(run.recording, culprit.origin.kind, at, "int64") for at in places]
        if None not in edits:
            words = f"make {quoted(culprit.shown)} int64 where it is made"
            fix = advise(culprit.origin.place, words, edits=tuple(e for e in edits if e is not None))
            fix = born_otherwise(run, fix, dict.fromkeys(births, "int64"))
    said = f"{v.spoilt:,} of {v.exact:,} sampled results are outside the range of {made} and wrap around"
    if is_cast(op) and source in REAL and made == "int32":
        said = f"{v.spoilt:,} of {v.exact:,} sampled numbers that differ are outside the range of {made}"
    return found_at(run, op, "DT301", culprit, fix, begins=flow, source=source, said=said)


def _here(run: Run, number: int, source: str) -> Fix:
    """Where the line that wraps is to change: its cast, or what it computes with."""
    op, place = run.ops[number], run.place(run.ops[number])
    made = op.outputs[0]
    if not is_cast(op):
        wide = "int64" if made == "int32" else "int32"
        edits = _with_beside(run, number, wide, whole_wide(run, number, wide))
        words = f"cast to {wide}{'' if edits or wide == 'int64' else ' or float32'} first"
        if not edits and next(stores(run, number), -1) >= 0:
            words += f", and keep the result in a tensor that is not {made}"
        return advise(place, words, edits=edits)
    if source in REAL and made == "int32":
        return advise(place, "cast to int64", edits=editing.at_birth(run.recording, "cast", place, "int64"))
    if source in REAL:
        return advise(place, f"limit the numbers to the range of {made} first")
    kept = editing.at_birth(run.recording, "cast", place, source)
    fix = advise(place, f"keep these numbers in {source}", edits=kept)
    return born_otherwise(run, fix, {run.event_of(number): source})


def stores(run: Run, number: int) -> Iterator[int]:
    """The writes that put integers, perhaps computed with since, into a tensor of their dtype."""
    made = run.ops[number].outputs[:1]
    stays = lambda n: (run.moves(n) or tagged(run.ops[n], "sum", "product")) and not writes(run.ops[n])
    below = run.below([number], lambda n: stays(n) and run.ops[n].outputs[:1] == made, FAR)
    return (n for n, at in below if writes(run.ops[n]) and 0 not in at and (run.ops[n].inputs[0].dtype,) == made)


def _with_beside(run: Run, number: int, wide: str, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """The edits of an op, with those of the same ops beside it on its line that wrap, too, as the products of channels
    of which a list is made."""
    op, at = run.ops[number], run.place(run.ops[number]).stack
    line = lambda n: [(f.file, f.line) for f in run.place(run.ops[n]).stack]
    alike = (n for n, v in run.values.items() if v.spoilt and n != number and run.ops[n].outputs == op.outputs)
    beside = [n for n in alike if at and run.ops[n].op == op.op and line(n) == line(number)] if edits else []
    found = dict.fromkeys(edit for each in (edits, *(whole_wide(run, n, wide) for n in beside)) for edit in each)
    every = DtypeChange(results=dict.fromkeys((number, *beside), wide))
    return tuple(found) if sound(run, tuple(found), every) else edits


def by_numpy(run: Run, v: Value, op: Op) -> Finding:
    """Integers that NumPy cast to fewer bits before they became a tensor."""
    event = run.event_of(v.op)
    origin, known = run.origin(event, None), run.recording.events[event]
    made, called = next(iter(known.source), known.to), known.op
    culprit = Operand(0, f"result of {called}", made, op.shape, op.device, None, origin)
    fix = advise(origin.place, "keep these numbers in the dtype that they have before this cast")
    said = f"{v.spoilt:,} of {v.exact:,} numbers were outside the range of {made} when NumPy cast them, and wrap around"
    begins = graph.flow(run.recording, event, None)
    title = f"NumPy casts numbers to {made} that are outside its range"
    found = found_at(run, op, "DT301", culprit, fix, begins=begins, source=made, said=said, title=title)
    return replace(found, tried=Tried(called, run.place(op), v.spoilt / v.exact, 0.0, "spoilt"))


def _in_turn(run: Run, op: Op, culprit: Operand) -> list[int]:
    """The births of what a loop writes into in turn with the culprit, where they were made as that was."""
    frame, events = next(iter(run.place(op).stack), None), run.recording.events
    names = operands.taken_in_turn(run.recording.text, frame, culprit.shown) if frame is not None else []
    alike = [
        (n, graph.place_of(run.recording, e.place))
        for n, e in enumerate(events)
        if names and (e.how, e.op, e.to) == (culprit.origin.kind, culprit.origin.op, culprit.dtype)
    ]
    beside = [(n, at) for n, at in alike if at.stack[1:] == culprit.origin.place.stack[1:]]
    others = ((n, at) for n, at in beside if at != culprit.origin.place)
    return [n for n, at in others if any(editing.assigns(run.recording, at, name) for name in names)]


def _narrowed(run: Run, op: Op) -> int | None:
    """The first operand of integer arithmetic that the program put into the dtype in which its result wraps. A program
    computes in 16 and 32 bits as it comes to them, and no key of 8 bits is meant; 8 bits are how images, masks and
    codes are kept, and so are numbers that were limited before they were cast, as samples of sound: there it is the
    arithmetic that should have widened them."""
    events = run.recording.events
    for index, i in enumerate(op.inputs):
        if i.event >= 0 and i.dtype == op.outputs[0] and events[i.event].how in _NAMED and not events[i.event].parents:
            return index if not _limited(run, events[i.event].place, i.dtype) else None
    return None


def _limited(run: Run, place: int, dtype: str) -> bool:
    """Whether the numbers that a line casts to a dtype were limited from both sides just before."""
    casts = (o for o in run.ops if o.place == place and is_cast(o) and o.outputs[:1] == (dtype,))
    sources = (run.ops[o.inputs[0].producer] for o in casts if o.inputs and o.inputs[0].producer >= 0)
    return any(tagged(source, "upper_bound") and tagged(source, "lower_bound") for source in sources)
