"""Tables that should be wide and are not (DT204): positions, angles, time steps, cumulative products.

With p bits of precision a dtype can distinguish 2**p neighbouring integers: 256 in bfloat16, 2,048 in float16. Beyond
that, positions become equal; and an angle of that many radians (a position times a frequency) has an error of half a
radian, no matter whether the position or the frequency was rounded. A product of n rounded factors has an error of
about n halves of the last bit.

Only tables are judged: values made from factories and integers alone. Data and weights that go through a sine or a
cumulative product may be as coarse as the rest of the model. Integers that are cast to such a dtype and back, with only
moves between, are judged by their largest value: token ids in a batch that was cast to half precision as a whole.

Where a run was also computed in higher precision, what is lost is measured: then a table's entries may have one
rounding, and its neighbours are meant to be different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf, prod

from .. import graph
from ..foresight import DtypeChange
from ..records import FORWARD, Edit, Finding, Fix, Input, Op, Operand, Place, Precision, Reach
from ..source import editing, models
from ..tables.dtypes import DTYPES, HALF, NARROW, REAL
from ..tables.english import quoted
from ..tables.operators import destination, is_cast, is_move, name_of, tagged, writes
from . import checks, dataflow_paths
from .advice import advise
from .blame import narrows, of_rounded
from .case import one, short
from .losses import ROUNDING, Losses
from .mechanisms import LEAST_STEPS
from .run_facts import Run
from .silent_findings import found_at

COARSE = 3 * ROUNDING
"""The error of a table that was measured: it is made of constants, which need only one rounding."""
_MERGED = 0.1
"""The share of a table's entries that may be equal to their neighbours, at its fine end."""
_BLURRED = 0.02
"""The share of a table's entries that may be equal to neighbours from which they differ by more than a detail."""
_SPOILT = 0.25
"""The error of a table, relative to it, that shows in a few calls."""
_TURNED = 8 * ROUNDING
"""The same for sines and cosines, whose size says nothing of their angles': a thirty-second of a radian on average is a
large part of one where the angles are largest."""


_OFF = 0.25
"""A cumulative product that may have this relative error is not a table."""
_NO_TABLE = "random", "uninitialised"
"""What begins with random numbers, or with memory that is filled unseen, is not a table."""
MEASURED_NO_TABLE = "conversion", *_NO_TABLE
"""The same where values were measured: then numbers from outside torch are data of unknown size."""
_DEEP = 24
"""How many ops back the beginning of a table is searched for."""
_MOST_COUNTED = 2.0**62
"""The largest count that is shown: a peak may be infinite."""


@dataclass(frozen=True)
class Source:
    """What a table was made from: whether only from factories and integers, its counts, its narrow operands."""

    pure: bool
    counted: int
    """How many neighbours must be distinguished: the length of an ``arange``, or the largest integer that was cast."""
    narrow: tuple[tuple[int, int], ...]
    """Each op and operand where something narrow was used, the first op last."""
    varied: bool
    """Whether its numbers may differ: it is not computed from one number everywhere."""


def _neighbours(dtype: str) -> float:
    """How many consecutive integers a narrow dtype can represent; for other dtypes infinity is good enough here."""
    return 2.0 ** DTYPES[dtype].digits if dtype in NARROW else float("inf")


def find(run: Run) -> list[Finding]:
    """One finding for each place where a table's dtype was decided."""
    found: dict[tuple[object, ...], Finding] = {}
    for number, op in enumerate(run.ops):
        if op.phase not in FORWARD or not op.outputs:
            continue
        for f in _judged(run, number, op) if op.outputs[0] in REAL else counted_back(run, number, op):
            found.setdefault(_birth(f), f)
    return list(found.values())


def _judged(run: Run, number: int, op: Op) -> Iterator[Finding]:
    """A table that needs more digits than its dtype has."""
    name, made = name_of(op), op.outputs[0]
    if name == "affine_grid_generator" and op.shape and max(op.shape) > _neighbours(made):
        yield table_finding(run, Narrow(number, -1, _in_a_row(max(op.shape), made)), op)
    if tagged(name, "sequence"):
        if prod(op.shape) > _neighbours(made):
            yield table_finding(run, Narrow(number, -1, _in_a_row(prod(op.shape), made)), op)
        return
    if not tagged(name, "angle") and (not tagged(name, "running") or made not in NARROW):
        return
    source = source_of(run, number)
    if not source.pure or not source.narrow:
        return
    at, index = (number, -1) if narrows(op) else _rounded_first(run, source) or source.narrow[-1]
    if tagged(name, "angle") and run.exact(graph.unmoved(run.ops, run.ops[at].inputs[index].producer)):
        return
    what = _too_many(run, op, source.counted, (at, index))
    if what:
        yield table_finding(run, Narrow(at, index, what, table=number), op)


def _too_many(run: Run, op: Op, counted: int, narrow: tuple[int, int]) -> str:
    """What a table counts beyond its dtype's digits, empty where it does not; ``narrow``: what is narrow first."""
    name, made, taken = name_of(op), op.outputs[0], run.ops[narrow[0]].inputs[narrow[1]]
    if tagged(name, "angle") and counted > _neighbours(taken.dtype):
        counts = taken.producer >= 0 and source_of(run, taken.producer).counted == counted
        if not counts:  # the positions are right, and a frequency is not
            shown = quoted(run.operand(run.ops[narrow[0]], narrow[1], None).shown)
            return f"{shown} is rounded to {taken.dtype}, and positions of up to {counted:,} multiply its error"
        return _whole(f"positions of up to {counted:,} are", taken.dtype)
    if name == "cumsum" and counted > _neighbours(made):
        return _whole(f"counts of up to {counted:,} are", made)
    if name == "cumprod" and op.shape and max(op.shape) / _neighbours(made) >= _OFF:
        return f"a product of {max(op.shape):,} factors, of which each multiplication is rounded to {made}"
    return ""


def _whole(numbers: str, dtype: str) -> str:
    return f"{numbers} rounded to {dtype}, which holds every whole number only up to {int(_neighbours(dtype)):,}"


def _in_a_row(count: int, dtype: str) -> str:
    return f"{count:,} numbers in a row; {dtype} can tell only about {int(_neighbours(dtype)):,} of them apart"


def _largest(op: Op) -> int:
    """The largest of the integers that an op cast, as far as the dtype can hold it."""
    return int(min(op.peak or 0, _MOST_COUNTED))


def counted_back(run: Run, number: int, op: Op) -> Iterator[Finding]:
    """An op that casts back to integers what a narrow dtype could not hold."""
    if not is_cast(op) or not op.inputs or op.inputs[0].dtype not in NARROW:
        return
    dtype, taken = op.inputs[0].dtype, op.inputs[0].producer
    if run.peaks.get(taken, inf) <= _neighbours(dtype):
        return
    for above in graph.ops_above(run.ops, [taken], lambda one: one.inputs if _keeps(one) else ()):
        before = run.ops[above]
        whole = is_cast(before) and before.inputs and before.inputs[0].dtype not in REAL
        if whole and before.outputs[:1] == (dtype,) and (largest := _largest(before)) > _neighbours(dtype):
            finite = (before.peak or 0) < inf
            what = _whole(f"integers of up to {largest:,} are" if finite else "integers are", dtype)
            yield table_finding(run, Narrow(number, 0, what, back=True), op)
            return


def _keeps(op: Op) -> bool:
    """Whether an op's numbers are its operands', in another order or together, and not only the small ones."""
    chosen = tagged(op, "exact") and not tagged(op, "upper_bound", "lower_bound", "pole")
    return not is_cast(op) and (is_move(op) or chosen or tagged(op, "join", "store"))


def source_of(run: Run, number: int, no_table: tuple[str, ...] = _NO_TABLE) -> Source:
    """Walks up from an op to what its values were made from; ``no_table``: tags of origins that make no table."""
    pure, varied, counted, front = True, False, 0, [(number, 0)]
    narrow: set[tuple[int, int]] = set()
    seen: set[int] = set()
    while front:
        at, depth = front.pop()
        if at in seen:
            continue
        seen.add(at)
        op = run.ops[at]
        counted = max(counted, _counts(run, at))
        varied |= not (op.inputs or tagged(op, "uniform")) or tagged(op, "running", "join", "store")
        given = (
            op.outputs[:1] != ()
            and op.outputs[0] in REAL
            and tagged(op, *no_table)
            and not (op.op == "tensor" and prod(op.shape) == 1)  # a number, and not data
            and op.op != "deepcopy"  # it fills the memory with its operand's numbers
            or any(_given(run, i) for n in run.same_call(at) for i in run.ops[n].inputs)
        )
        pure = pure and depth < _DEEP and not given
        narrow.update((at, index) for index, i in enumerate(op.inputs) if i.dtype in NARROW)
        front += [(i.producer, depth + 1) for i in op.inputs if i.producer >= 0]
        if tagged(op, "blank"):  # what is written into it, before it is taken, is what it was made from
            stored = [i for n in run.writers.get(at, ()) if n < number for i in _stored(run.ops[n])]
            pure = pure and not any(_given(run, i) for i in stored)
            front += [(i.producer, depth + 1) for i in stored if i.producer >= 0]
    return Source(pure, counted, tuple(sorted(narrow, reverse=True)), varied)


def _stored(op: Op) -> list[Input]:
    """The numbers that an op writes."""
    return [i for index, i in enumerate(op.inputs) if index != destination(op)]


def _counts(run: Run, number: int) -> int:
    """How many neighbours an op needs: the length of a sequence, or the largest integer that is cast or summed."""
    op = run.ops[number]
    if tagged(op, "sequence"):
        return prod(op.shape)
    if is_cast(op) and op.inputs and op.inputs[0].dtype not in REAL:
        return _largest(op)
    if name_of(op) == "cumsum" and number in run.peaks:
        return int(run.peaks[number])
    return 0


def _given(run: Run, i: Input) -> bool:
    """Whether an operand is a weight or data, from which no table is made."""
    if i.dtype not in REAL:
        return False
    if i.holder is not None:
        return True
    return i.producer < 0 and i.event >= 0 and run.recording.events[i.event].how in ("input", "worker")


# ---------------------------------------------------------------- measured tables


def _is_coarse(op: Op, p: Precision) -> bool:
    """Whether a table has a larger error than one rounding explains."""
    return is_blurred(p) or p.total >= COARSE or tagged(op, "sequence") and p.merged >= _MERGED


def is_blurred(p: Precision) -> bool:
    """Whether neighbours in a table are equal that should be different numbers."""
    return p.blurred >= _BLURRED


def is_spoilt(op: Op, p: Precision) -> bool:
    """Whether a small sample of a table shows damage: equal neighbours, turned angles, or a quarter of the numbers."""
    return is_blurred(p) or p.total >= (_TURNED if tagged(op, "angle") else _SPOILT)


def measured(
    losses: Losses, bad: Callable[[Op, Precision], bool] = _is_coarse, *, counted: bool = False
) -> Iterable[Finding]:
    """DT204: tables made of factories and integers only, that are ``bad``. counted: only those that are made from a
    sequence or a count."""
    run = losses.run
    found: dict[tuple[object, ...], Finding] = {}
    coarse = {n for n in losses.of if _changes_a_state(run.ops[n])} | {v.op for v in run.recording.values if v.kept > 0}
    for number, p in losses.of.items():
        op = run.ops[number]
        if op.phase not in FORWARD or not op.outputs or p.spoiled or not p.total:
            continue
        if tagged(op, "adds_at") and p.introduced >= COARSE:
            coarse.add(number)  # a write rounds once: this adds numbers up, and loses some of them
            continue
        if op.outputs[0] in REAL and not bad(op, p):
            continue
        if op.outputs[0] not in REAL:
            for f in counted_back(run, number, op):
                found.setdefault(_birth(f), f)
            continue
        if number in coarse or coarse.intersection(losses.sources(number)) or losses.asks_for_rounding(number):
            coarse.add(number)
            continue
        source = source_of(run, number, MEASURED_NO_TABLE)
        # what was narrow before an op that itself decides for a dtype, and loses most there, has lost nothing
        decides = (is_cast(op) or narrows(op)) and losses.own(number)
        at, index = (None if decides else _rounded_first(run, source)) or (number, -1)
        if index < 0 and op.outputs[0] not in HALF:
            continue
        if source.pure and (source.counted or not counted) and (source.varied or p.total >= _SPOILT):
            coarse.add(number)
            f = table_finding(run, Narrow(at, index, _coarse(p)), op)
            found.setdefault(_birth(f), f)
    yield from found.values()


def _rounded_first(run: Run, source: Source) -> tuple[int, int] | None:
    """The first op, and its operand, that took numbers which may have been rounded, None for none. Those that are exact
    in a narrow dtype are no cause, unless what is added up from them is not."""
    taken = (
        (graph.unmoved(run.ops, run.ops[at].inputs[index].producer), at, index) for at, index in source.narrow[::-1]
    )
    rounds = lambda made, at: not run.exact(made) or tagged(run.ops[at], "running")
    return next(((at, index) for made, at, index in taken if rounds(made, at)), None)


def _changes_a_state(op: Op) -> bool:
    """Whether an op changes a tensor again and again, so that it is no table."""
    return writes(op) and not tagged(op, "store") and op.count > LEAST_STEPS


def _coarse(p: Precision) -> str:
    if p.blurred >= _BLURRED:
        return f"{p.blurred:.0%} of its entries became equal to the next one, although they are at least 1/8 apart"
    if p.merged >= _MERGED:
        return f"{p.merged:.0%} of its entries became equal to the next one"
    return f"its entries have an error of {p.total:.1%}; one rounding would cost {ROUNDING / 2:.1%}"


def _birth(f: Finding) -> tuple[object, ...]:
    return f.culprit.origin.place.stack[:1] or (f.culprit.name,) if f.culprit is not None else ()


# ---------------------------------------------------------------- the finding


@dataclass(frozen=True)
class Narrow:
    """Where something narrow enters a table: the op and its operand, -1 for the op's own result; and what is lost."""

    op: int
    operand: int
    what: str
    back: bool = False
    """Whether these are integers that are cast back to integers, and not a table."""
    table: int = -1
    """The op that makes the table, where the casts on the way to it were followed."""


def table_finding(run: Run, narrow: Narrow, table: Op) -> Finding:
    op, index = run.ops[narrow.op], narrow.operand
    dtype = op.inputs[index].dtype if index >= 0 else op.outputs[0]
    place = run.place(table)
    culprit = _culprit(run, narrow, dtype)
    event = op.inputs[index].event if index >= 0 else run.event_of(narrow.op)
    if (decided := of_rounded(run, narrow.op, event)) != event:
        culprit, event = replace(culprit, origin=run.origin(decided, dtype)), decided
    makes, facts = f"{quoted(table.op)} makes the table from numbers that were rounded to {dtype}", {}
    if narrow.back:
        makes = f"{quoted(table.op)} uses {dtype} numbers as integers"
        facts = {"title": f"{quoted(table.op)} gets integers that were rounded to {dtype}"}
    elif is_cast(table) and table is op:
        makes = f"a table is cast to {dtype}, which is too coarse for it"
        facts = {"title": makes}
    notes = [narrow.what]
    if table is not op and run.place(op).stack[:1] != place.stack[:1]:
        notes.append(f"{short(run.place(op))} {_taken(op, dtype, quoted(culprit.shown), quoted(table.op))}")
    fix = _all_wide(run, narrow.table) or _fix(run, narrow, culprit, event, place)
    begins, reach = graph.flow(run.recording, event, dtype), Reach(table.count, 0, 0)
    return found_at(
        run, table, "DT204", culprit, fix, begins=begins, source=dtype, said=makes, notes=notes, reach=reach, **facts
    )


def _taken(op: Op, dtype: str, shown: str, table: str) -> str:
    """What an op does with a narrow operand, from which a table is made later."""
    if is_cast(op) and op.outputs[:1] != (dtype,):
        return f"casts {dtype} {shown} to {op.outputs[0]}: the digits that {dtype} has lost do not come back"
    return f"computes with {dtype} {shown}, so its result is {dtype}, and {table} makes the table from that"


def _culprit(run: Run, narrow: Narrow, dtype: str) -> Operand:
    """What is narrow. A cast to the model's own dtype is right for data but wrong for a table: then the cast is the
    cause, not the model."""
    op, index = run.ops[narrow.op], narrow.operand
    return run.operand(op, index, dtype) if index >= 0 else run.result(narrow.op, dtype)


def _fix(run: Run, narrow: Narrow, culprit: Operand, event: int, place: Place) -> Fix:
    """Make the table wide where it is born; if the same cast is right for weights, keep the table out of it."""
    origin = culprit.origin
    taken = run.place(run.ops[narrow.op]) if narrow.operand >= 0 else place
    shared = any(i.holder == "parameter" and i.event == event for o in run.ops for i in o.inputs)
    at = origin.place if origin.place.stack and not shared else taken
    if narrow.back:  # the same cast may be right for the other values
        why = f"it rounds them, and {short(taken)} needs integers again"
        return advise(at, "leave the integers out of the cast", why, named=taken)
    if shared:
        return _made_again(run, narrow, culprit, event)
    edit = editing.at_birth(run.recording, origin.kind, origin.place, "float32") if origin.place.stack else None
    edit = None if edit is not None and _makes_weights(run, origin.place, edit, culprit.dtype) else edit
    what = quoted(culprit.written) if culprit.written else "the table"
    here = f" ({short(at)})" if edit is None else ""  # an edit is shown with its place
    why = f"make {what} float32{here}, and cast only the finished table"
    named = graph.NOWHERE if edit is not None else at
    fix = checks.born_otherwise(run, advise(at, why, named=named, edits=edit), {event: "float32"})
    return fix if edit is None or fix.edits else _cast_when_ready(run, culprit, event, edit) or fix


def _makes_weights(run: Run, birth: Place, edit: Edit, dtype: str) -> bool:
    """Whether an edit changes what a call passes on to where a table is made, and that call makes weights, too."""
    calls = {frame for frame in birth.stack[1:] if (frame.file, frame.line) == (edit.file, edit.start[0])}
    events = (run.recording.events[p.event] for p in run.recording.parameters if p.event >= 0 and p.dtype == dtype)
    return any(not calls.isdisjoint(graph.place_of(run.recording, e.place).stack[1:]) for e in events)


def _made_again(run: Run, narrow: Narrow, culprit: Operand, event: int) -> Fix:
    """Numbers that a model's cast rounds are made again after it."""
    op, shown, cast = run.ops[narrow.op], quoted(culprit.shown), culprit.origin.place
    shape = op.inputs[narrow.operand].shape if narrow.operand >= 0 else op.shape
    rounded = (o for n, o in enumerate(run.ops) if is_cast(o) and o.shape == shape and run.event_of(n) == event)
    makers = (run.ops[o.inputs[0].producer] for o in rounded if o.inputs and o.inputs[0].producer >= 0)
    places = {place.stack[:1]: place for place in map(run.place, makers)}
    made = next(iter(places.values())) if len(places) == 1 else graph.NOWHERE
    of = f" of {quoted(op.module)}" if culprit.shown.startswith("self.") and op.module else ""
    like = f", as in {short(made)}" if made.stack else ""
    right = f"cast is right for the weights, but rounds {shown}, too"
    change = f"compute {shown}{of} again in float32{like}, after the cast at {short(cast)}"
    plain = f"at {short(made)}, assign {shown} as a plain attribute: a cast changes only parameters and buffers"
    registered = made.stack and "register_buffer(" in run.recording.text.line(made.file, made.line)
    attribute = (f"{plain}; then `.to(device)` does not move it, either",) if registered else ()
    edits = _kept_out(run, narrow, culprit)
    if edits:
        change, reason = f"keep {shown}{of} as it is in float32", f"the {right}"
        return advise(cast, change, reason, edits=edits, others=attribute, tested=True)
    named = made if made.stack else cast
    return advise(named, change, f"that {right}", named=named, others=attribute)


def _kept_out(run: Run, narrow: Narrow, culprit: Operand) -> tuple[Edit, ...]:
    """The edit by which one module's tensor keeps its numbers when the model is cast; none where several modules have
    such a tensor, the text does not show how, or something would be refused then."""
    op, name = run.ops[narrow.op], culprit.shown.removeprefix("self.")
    alike = {o.module for o in run.ops if (o.place, o.op) == (op.place, op.op)}
    root = run.root(op.module)
    if not name.isidentifier() or name == culprit.shown or len(alike) != 1:
        return ()
    owner = op.module.removeprefix(root).removeprefix(".")
    edits = one(models.kept_out(run.recording.text, culprit.origin.place, root, owner, name))
    change = DtypeChange(modules={f"{op.module}.{name}": "float32"})
    return edits if checks.sound(run, edits, change) else ()


def _all_wide(run: Run, table: int) -> Fix | None:
    """Every cast on the way to a table made to float32, with edits that cast the table when it is complete; None where
    other lines than casts decide, or something would be refused then."""
    recording, narrow = run.recording, source_of(run, table).narrow if table >= 0 else ()
    used = sorted({(i.event, i.dtype) for i in (run.ops[at].inputs[index] for at, index in narrow)})
    dtypes = {dtype for _, dtype in used}
    if len(dtypes) != 1 or any(event < 0 or event in run.events_of_weights for event, _ in used):
        return None
    dtype = dtypes.pop()
    origins = {event: run.origin(event, dtype) for event, _ in used}
    edits = [editing.of_cast(recording, o.place, "float32") if o.kind == "cast" else None for o in origins.values()]
    ready = _complete(run, {at for at, _ in narrow})
    found = dict.fromkeys(edit for edit in edits if edit is not None)
    if None in edits or len({written for _, written in found}) != 1 or ready is None:
        return None
    places = [*(o.place for o in origins.values()), *(run.place(run.ops[n]) for n in ready)]
    written = next(written for _, written in found) if len({(p.file, p.function) for p in places}) == 1 else ""
    back = editing.at_results(recording, ready, dtype, written)
    change = DtypeChange(births=dict.fromkeys(origins, "float32"), results=dict.fromkeys(ready, dtype))
    shown = (*(edit for edit, _ in found), *back)
    return _shown(run, places[0], shown, change, dtype) if back or not ready else None


def _complete(run: Run, begun: set[int]) -> tuple[int, ...] | None:
    """The ops whose results are complete tables that a wider start makes wider: made from these and other tables alone,
    used by something else, and not cast by the program itself then; None where nothing uses one."""
    made = set(begun)
    for number, op in enumerate(run.ops):
        floats = [i for i in op.inputs if i.dtype in REAL]
        stays = bool(op.outputs) and op.outputs[0] in REAL and not _cast_back(op)
        if stays and op.phase in FORWARD and any(i.producer in made for i in floats):
            made |= {number} if all(i.producer in made or _is_table(run, i) for i in floats) else set()
    uses = [(n, user) for n in sorted(made) for user in run.users[n] if user not in made]
    widened = (n for n, user in uses if run.ops[n].outputs[0] in HALF and not _cast_back(run.ops[user]))
    return tuple(dict.fromkeys(widened)) if uses else None


def _cast_back(op: Op) -> bool:
    return is_cast(op) and bool(op.outputs) and op.outputs[0] in HALF


def _is_table(run: Run, i: Input) -> bool:
    return not _given(run, i) and i.producer >= 0 and source_of(run, i.producer).pure


def _cast_when_ready(run: Run, culprit: Operand, event: int, edit: Edit) -> Fix | None:
    """The table made wide, with a second edit that casts it when it is complete; None where that does not serve."""
    recording, dtype = run.recording, culprit.dtype
    ready = dataflow_paths.tables(recording, culprit.origin.place, dtype)
    back = editing.at_results(recording, ready, dtype)
    change = DtypeChange(births={event: "float32"}, results=dict.fromkeys(ready, dtype))
    return _shown(run, culprit.origin.place, (edit, *back), change, dtype) if back else None


def _shown(run: Run, place: Place, edits: tuple[Edit, ...], change: DtypeChange, dtype: str) -> Fix | None:
    """The fix with these edits; None where something objects."""
    why = f"make the table in float32, and cast it to {dtype} when it is ready"
    return advise(place, why, edits=edits, tested=True) if checks.sound(run, edits, change) else None
