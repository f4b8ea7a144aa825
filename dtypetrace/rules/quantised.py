"""Quantised numbers that are about as large as one step (DT203): a constant scales them before they are rounded to
8-bit codes, most of whose range stays empty, and what the codes stand for is computed with. Or a cast to signed codes
cuts off fractions that nothing has rounded: all numbers come nearer to zero. Or a cast to integers of any size, or
Python's ``int``, cuts off numbers that are whole but for their rounding: 31.999998 becomes 31.

Few codes may be meant: of numbers that are scaled by what was computed from them, as in ternary weights, of numbers
that a narrower limit cuts off, and of whole numbers, which rounding leaves as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import graph
from ..records import FORWARD, Finding, Op, Tried, Value
from ..source import codes
from ..tables.dtypes import REAL
from ..tables.english import quoted
from ..tables.operators import is_cast, is_move, tagged, writes
from .advice import advise
from .no_gradient import cut_of
from .run_facts import FAR, Run
from .silent_findings import found_at, result_of

_CODES = "int8", "uint8"
_CHANGED = 0.04
"""How much rounding changes the root mean square of numbers, if its errors are a quarter of them or more: they add up
to a twelfth of a step squared, and much of what is below half a step becomes zero."""
_FEWEST, _MOST = 32, 0.5
"""Sampled numbers of the shortest tensor of which it is told that a cast cuts them off; the share with a fraction."""
_BELOW = 0.1
"""The share of numbers that lie a rounding below whole ones, where those are no chance."""
_SAME = 1e-6


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that casts such numbers to their codes."""
    sizes = {p.op: p.size for p in (*run.recording.spot_checks, *run.recording.precisions) if p.size}
    told: set[tuple[object, ...]] = set()
    for number, op in enumerate(run.ops):
        if op.outputs[:1] not in [(code,) for code in _CODES] or not is_cast(op) or op.phase not in FORWARD:
            continue
        line = tuple((frame.file, frame.line) for frame in run.place(op).stack[:1])
        if line in told or not _computed_with(run, number):
            continue
        if _cuts_off(run, number) and not _parts_from_gradients(run, number):
            told.add(line)
            yield _cut_off(run, run.values[number])
            continue
        rounded = _rounded(run, op, sizes)
        given = run.ops[rounded].inputs[0].producer if rounded >= 0 else -1
        if given not in sizes or rounded not in sizes or not _scaled_by_a_constant(run, run.ops[given]):
            continue
        before, after = sizes[given], sizes[rounded]
        if abs(after / before - 1) >= _CHANGED:
            told.add(line)
            yield _finding(run, op, before, after)
    yield from _below_whole_ones(run)


def _below_whole_ones(run: Run) -> Iterator[Finding]:
    told: set[tuple[object, ...]] = set()
    for v in run.recording.values:
        op, place = run.ops[v.op], run.place(run.ops[v.op])
        line = tuple((frame.file, frame.line) for frame in place.stack[:1])
        if not v.short or v.short < _BELOW * v.exact or op.phase not in FORWARD or line in told:
            continue
        told.add(line)
        by = f"cast to {op.outputs[0]}" if op.outputs else "taken as integers"
        edit = codes.rounded(run.recording.text, place.stack[0]) if place.stack else None
        fix = advise(place, f"round the numbers before they are {by}", edits=edit)
        said = (
            f"{v.short:,} of {v.exact:,} sampled numbers lie a rounding below a whole one, and become the one before it"
        )
        title = f"{quoted(op.op)} cuts off numbers that are whole but for their rounding"
        culprit = result_of(run, op)
        source, made = op.inputs[-1].dtype, culprit.dtype
        yield found_at(run, op, "DT203", culprit, fix, source=source, made=made, how="cast", said=said, title=title)


def _rounded(run: Run, op: Op, sizes: dict[int, float]) -> int:
    """The op that rounded what a cast takes, where no limit has cut anything off since; -1 for none."""
    number = op.inputs[-1].producer if op.inputs else -1
    while number >= 0 and run.ops[number].inputs:
        above, limits = run.ops[number].inputs[0].producer, tagged(run.ops[number], "upper_bound", "lower_bound")
        if tagged(run.ops[number], "whole"):
            return number
        cut = limits and abs(sizes.get(number, 0.0) - sizes.get(above, 1.0)) > _SAME * sizes.get(above, 1.0)
        if cut or not (limits or is_move(run.ops[number])):
            break
        number = above
    return -1


def _scaled_by_a_constant(run: Run, op: Op) -> bool:
    """Whether an op scales floating numbers by a number of Python's, or by one that was only made and moved."""
    if not tagged(op, "scale") or op.outputs[0] not in REAL:
        return False
    others = [i for i in op.inputs[1:] if not i.shape]
    above = list(graph.ops_above(run.ops, [i.producer for i in others], most=FAR))
    made = all(run.moves(n) or not run.ops[n].inputs for n in above)
    return len(others) == len(op.inputs) - 1 and made


def _cuts_off(run: Run, number: int) -> bool:
    """Whether a cast to signed codes cuts off the fractions of most numbers, which are a good part of their size. Who
    adds one half before rounds so."""
    v, op = run.values.get(number), run.ops[number]
    cut = v is not None and v.exact >= _FEWEST and v.cut >= _MOST * v.exact and op.outputs[0] == "int8"
    above = (n for i in op.inputs[-1:] for n in graph.first_operands(run.ops, i.producer))
    limits = lambda n: is_move(run.ops[n]) or tagged(run.ops[n], "upper_bound", "lower_bound")
    return cut and not tagged(run.ops[next((n for n in above if not limits(n)), number)], "sum")


def _parts_from_gradients(run: Run, number: int) -> bool:
    """Whether a cast also cuts parameters off that should learn: that is told of it (DT305), and weighs more."""
    return any(not u.gradient_dtype and cut_of(run.recording, u).op == number for u in run.recording.updates)


def _computed_with(run: Run, number: int) -> bool:
    """Whether codes become floating numbers again, which are scaled or multiplied."""
    stays = lambda n: run.moves(n) or tagged(run.ops[n], "join", "store")
    below = [n for n, _ in run.below([number], stays, FAR)]
    kept = [graph.unmoved(run.ops, run.ops[n].inputs[0].producer) for n in below if writes(run.ops[n])]
    below += [n for n, _ in run.below([n for n in kept if n >= 0], stays, FAR)]
    widened = [n for n in below if is_cast(run.ops[n]) and run.ops[n].outputs[0] in REAL]
    uses = [n for n, _ in run.below(widened, run.moves, FAR)]
    return any(tagged(run.ops[n], "scale", "product", "matmul") for n in uses)


def _cut_off(run: Run, v: Value) -> Finding:
    op, made = run.ops[v.op], run.ops[v.op].outputs[0]
    place, source = run.place(op), op.inputs[-1].dtype
    culprit = result_of(run, op)
    edit = codes.rounded(run.recording.text, place.stack[0])
    what = f"round the numbers before they are cast to {made}"
    fix = advise(place, what, "the cast makes each of them smaller", edits=edit)
    said = f"{v.cut:,} of {v.exact:,} sampled numbers had a fraction, which {made} cuts off"
    title = f"a cast to {made} cuts off what should be rounded"
    found = found_at(run, op, "DT203", culprit, fix, source=source, made=made, how="cast", said=said, title=title)
    return replace(found, tried=Tried(op.op, place, v.cut / v.exact, 0.0, "spoilt"))


def _finding(run: Run, op: Op, before: float, after: float) -> Finding:
    place, made = run.place(op), op.outputs[0]
    culprit = result_of(run, op)
    fix = advise(
        place,
        "scale the numbers so that the largest ones become the largest codes",
        "the scale comes from the numbers, such as x.abs().amax() / 127",
    )
    said = f"root mean square {before:.2g} before rounding to whole numbers, {after:.2g} after it"
    title = f"numbers as small as one step of {made} are rounded to it"
    source = op.inputs[-1].dtype
    found = found_at(run, op, "DT203", culprit, fix, source=source, made=made, how="cast", said=said, title=title)
    return replace(found, tried=Tried(op.op, place, abs(after / before - 1), 0.0))
