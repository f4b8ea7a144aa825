"""Integers that lose their values, measured on samples of the calls (``capture.integers``).

Wrapped (DT301): the result of 8-, 16- or 32-bit arithmetic is outside its dtype's range, and what came out is used as a
quantity: it becomes floating point, is divided, or is compared by size; or the program tells things apart by it, and
different numbers became equal: a hash in 32 bits merges none of a sample, and a key that wraps merges many. Bytes that
are masked, shifted or taken modulo a number may wrap on purpose. So do integers that are cast to fewer bits, unless the
program takes their bits apart. A floating number outside the range of the integers to which it is cast has no right
result at all. Of flags, 0 and 1, ``~`` makes numbers that are neither.

Cut off (DT203): a write stores floating numbers in a tensor of integers, which loses their fractions, and that tensor
is computed with as floating point afterwards. So do a number of Python's and a cast to ``x.dtype`` before the write. A
cast whose dtype the program names is its own decision, unless it makes zeros of all numbers, and so are numbers that
serve as indices. Cut off, too: the
imaginary parts of complex numbers that a cast makes real.

Merged (DT204): different integers, or float64 numbers such as times, are equal after a cast to float32, which cannot
distinguish neighbours above 2**24, or to float64 above 2**53; or integers that such a cast changed are made integers
again, and the program tells things apart by them; or numbers beyond that come from data in such a dtype and
are taken for integers again.

Stopped (DT307): a histogram has its counts in the dtype of what it counts, where they stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile
from math import prod, tau

from .. import graph
from ..foresight import DtypeChange
from ..records import CAST, FORWARD, Finding, FlowStep, Op, Operand, Origin, Tried, Value
from ..source import editing, expressions
from ..source.operands import CallOperand
from ..tables.dtypes import COMPLEX, DTYPES, HALF, INTEGERS, REAL
from ..tables.english import quoted
from ..tables.operators import is_cast, is_move, name_of, tagged, writes
from . import whole_sums, wrapped
from .advice import advise
from .case import all_of
from .checks import sound
from .flows import tells_apart
from .run_facts import FAR, Run, argument_of
from .silent_findings import found_at, result_of

_FRACTIONS = 0.1
"""Share of the numbers written that lose a fraction."""
_MERGED = 0.1
"""Share of neighbours that become equal."""
_HASHED = 0.9
"""Share of integers that do not fit where they are hashes or random: of token ids or labels, most do."""
_COLLIDED = 0.02
"""Share of different keys that become equal: of a hash in 32 bits, none of a sample."""
_LARGE = 0.25
"""Share of the data that is taken for integers and too large for them: other columns are numbers."""
_CHOSEN = 0.1
"""Share of integers that would be others of wider numbers, from which on that is told for itself."""
_IDS = "int32", "int64"
"""Integers that a floating dtype does not hold, if they are large."""
_SELDOM = 8
"""A counter wraps at most once in so many calls that are measured."""
_OF_SIZE = "divide", "compare", "total", "largest"
"""What takes integers by their size: who sums hashes up, or looks for the largest, means numbers."""
_SHORT = frozenset(name for name in INTEGERS if DTYPES[name].bits <= 32)
_FEWEST = 32
"""Sampled numbers of the shortest tensor of which it is told that all become zero, or that ids change."""
_TURN = 2.0**-5
"""The part of a turn by which a sampled peak may be off."""


def find(run: Run) -> list[Finding]:
    """One finding for each code and line where the integers' dtype was decided, or where they wrapped. What is
    computed from integers that wrapped is none of its own."""
    found: dict[tuple[object, ...], Finding] = {}
    spoilt = {v.op for v in run.recording.values if (v.spoilt or v.cut) and run.ops[v.op].phase in FORWARD}
    for v in run.recording.values:
        if v.op not in spoilt or not is_cast(run.ops[v.op]) and _from_wrapped(run, v.op, spoilt):
            continue
        f = _of_array(run, v) if _crosses(run, v.op) else _judged(run, v)
        if f is not None and f.culprit is not None:
            at = f.culprit.origin.place.stack[:1] or f.site.stack[:1]
            found.setdefault((f.code, *((frame.file, frame.line) for frame in at)), f)
    return list(found.values())


def _judged(run: Run, v: Value) -> Finding | None:
    op = run.ops[v.op]
    if not op.outputs:  # numbers that Python takes as integers, one after the other
        return _coarse(run, v, op) if v.spoilt and op.count > 1 and _given(run, op) else None
    made = op.outputs[0]
    floats = [i for i in op.inputs if i.dtype in REAL]
    if name_of(op) == "histc":
        return _stopped(run, v, op)
    if not floats and made not in REAL and tagged(op, "fills"):
        return _filled(run, op) if _used_as_numbers(run, v.op) else None
    if made in REAL:
        return _of_reals(run, v, op)
    stored = _store_of(run, v, op)
    if stored >= 0:
        return _cut_off(run, v.op, stored, v.cut or v.spoilt, v.exact)
    if not v.spoilt:  # a cast that the program asks for may cut fractions off
        gone = floats and is_cast(op) and _all_zero(run, v, op) or not op.inputs and _none_left(run, v)
        return _emptied(run, v, op) if gone else None
    if not floats and (is_cast(op) or name_of(op) == "copy"):
        return _wrapped(run, v, op) if not (_taken_apart(run, v) or _is_phase(run, v.op)) else None
    if tagged(op, "not"):
        return wrapped.inverted(run, op) if v.spoilt == v.exact and _quantities(run, [v.op]) else None
    if not floats:
        holds = [v.op, *(_base(run, op) if writes(op) else ())]
        counts = (
            _quantities(run, holds) or _is_stored(run, v.op) or v.cut >= _COLLIDED * v.exact and tells_apart(run, v.op)
        )
        counts = counts or tagged(op, "matmul", "sign") and _are_ranked(run, v.op) or _is_counter(run, v, op)
        counts = counts or _is_read_by_size(run, v, op)
        return _wrapped(run, v, op) if counts and not _is_phase(run, v.op) else None
    if not is_cast(op):
        return _cut_off(run, v.op, v.op, v.spoilt, v.exact)
    return _of_large(run, v, op)


def _of_reals(run: Run, v: Value, op: Op) -> Finding | None:
    """Of a cast to real floating numbers."""
    if any(i.dtype in COMPLEX for i in op.inputs):
        return _imaginary(run, v, op) if v.spoilt >= _FRACTIONS * v.exact else None
    merged = v.spoilt > 0 and v.spoilt >= _MERGED * v.exact
    return _merged(run, v, op) if merged or _come_back(run, v, op) else None


def _of_array(run: Run, v: Value) -> Finding | None:
    """Of numbers that NumPy cast before they became a tensor: bits and rests that a program takes in other ways than by
    a cast that it writes are meant."""
    op = run.ops[v.op]
    known = run.recording.events[run.event_of(v.op)]
    if known.source[0] in REAL:
        return _merged(run, v, op) if v.spoilt >= _MERGED * v.exact else None
    if known.told < 0:
        return None
    if not v.spoilt:
        return _emptied_by_numpy(run, v, op) if v.cut >= _FEWEST and _joins_floats(run, v.op) else None
    return wrapped.by_numpy(run, v, op) if not (_taken_apart(run, v) or _is_phase(run, v.op)) else None


def _of_large(run: Run, v: Value, op: Op) -> Finding | None:
    """Of a cast of floating numbers to integers that hold not all of them."""
    source, made = op.inputs[-1], op.outputs[0]
    far = source.dtype == "float64" or run.peaks.get(source.producer, 0.0) > DTYPES["int32"].largest
    if made == "int32" and far:
        return _wrapped(run, v, op) if v.spoilt >= _COLLIDED * v.exact and _unchecked(run, v.op) else None
    if made in _IDS:
        given = _given(run, op) or _joined(run, op) is not None or _were_integers(run, op)
        given = given and v.spoilt >= _LARGE * v.exact
        return _coarse(run, v, op) if given and not _only_sizes(run, v.op) else whole_sums.find(run, v)
    return _wrapped(run, v, op)


def _come_back(run: Run, v: Value, op: Op) -> bool:
    """Whether many integers that floating point changed are made integers again, only moved and stored since, and are
    not only taken by their size then: they are ids."""
    if v.cut < max(_FEWEST, _LARGE * v.exact) or prod(op.shape) < _FEWEST:
        return False
    same = lambda n: run.moves(n) or tagged(run.ops[n], "exact")
    stays = lambda n: same(n) and not REAL.isdisjoint(run.ops[n].outputs[:1])
    stores = [n for n in (v.op, *(n for n, _ in run.below([v.op], stays, FAR))) if writes(run.ops[n])]
    holds = [v.op, *(base for n in stores for base in _base(run, run.ops[n]))]
    back = [n for n, _ in run.below(holds, stays, FAR) if is_cast(run.ops[n]) and run.ops[n].outputs[0] in _IDS]
    large = (n for n in back if n in run.values and run.values[n].spoilt > _LARGE * run.values[n].exact)
    return any(not _only_sizes(run, n) for n in large)


def _from_wrapped(run: Run, number: int, spoilt: set[int]) -> bool:
    """Whether an operand of integer arithmetic comes from such arithmetic in the same dtype."""
    made = run.ops[number].outputs[:1]
    for i in run.ops[number].inputs:
        above = next((n for n in graph.first_operands(run.ops, i.producer) if not is_move(run.ops[n])), -1)
        if (i.dtype,) == made and i.dtype not in REAL and above in spoilt and run.ops[above].outputs[:1] == made:
            return True
    return False


def _quantities(run: Run, numbers: list[int], apart: frozenset[int] = frozenset(), event: int = -1) -> bool:
    """Whether what ops made goes on as quantities: floating point, or integers that are divided or compared by size.

    apart: ops that do not count, such as those by which an average of integers is computed from itself.
    event: the birth of what they made, which is known where one line takes several tensors, too.
    """

    def goes_on(n: int) -> bool:
        op = run.ops[n]
        indexes = tagged(op, "picks", "places") and any(i.dtype in REAL for i in op.inputs)
        return bool(op.outputs) and not indexes and not _of_bits(op) and not tagged(op, "equal", "like")

    def passes(n: int) -> bool:
        return n not in apart and goes_on(n) and run.ops[n].outputs[0] != "bool"

    takers = [n for n, op in enumerate(run.ops) if any(i.event == event >= 0 for i in op.inputs) and n not in apart]
    reached = run.below([*numbers, *filter(passes, takers)], passes, FAR)
    taken = [n for n in (*takers, *(n for n, _ in reached)) if n not in apart and n not in numbers]
    below = [n for n in taken if goes_on(n)]
    real = any(run.ops[n].op == "float" and not run.ops[n].outputs for n in taken)  # a number of Python's
    return real or any(run.ops[n].outputs[0] in REAL or _by_size(run, n) for n in below)


def _is_stored(run: Run, number: int) -> bool:
    """Whether integers are written into a tensor of their dtype that goes on as quantities after the write, such as a
    channel of an image. Of a table, other columns may be quantities."""
    for store in wrapped.stores(run, number):
        base = _base(run, run.ops[store])
        size, last = prod(run.ops[base[-1]].shape), run.ops[base[-1]].shape[-1:]
        parts = (n for n in run.users[base[-1]] if is_move(run.ops[n]) or tagged(run.ops[n], "picks"))
        columns = (n for n in parts if prod(run.ops[n].shape) < size and run.ops[n].shape[-1:] != last)
        before = (n for n in range(store) if run.ops[n].count <= run.ops[store].count)
        if _quantities(run, base, frozenset((*columns, *before))):
            return True
    return False


def _by_size(run: Run, number: int) -> bool:
    """Whether an op takes integers by their size. A check sum is no total: its rest of a division is taken."""
    rest = tagged(run.ops[number], "total") and any(_of_bits(run.ops[user]) for user in run.users[number])
    return tagged(run.ops[number], *_OF_SIZE) and not rest


def _are_ranked(run: Run, number: int) -> bool:
    """Whether a program orders integers, or what they add up to, or takes the largest: hashes may be ordered, but
    products of matrices are scores, and what is turned positive, or around, is a size."""
    stays = lambda n: is_move(run.ops[n]) or tagged(run.ops[n], "sum")
    ordered = ("order", "extreme", "lower_bound", "upper_bound") if tagged(run.ops[number], "sign") else ("order",)
    return any(tagged(run.ops[n], *ordered) for n, _ in run.below([number], stays, FAR))


def _is_counter(run: Run, v: Value, op: Op) -> bool:
    """Whether an op counts in one number: it adds a number of Python's to a tensor of 32 bits, or how many of a tensor
    are true to one of less, too, which is only added to and read by Python, and has wrapped once in many calls. A
    generator of random numbers wraps in every second one, and a number of 8 bits may go round on purpose."""
    short = _SHORT if len(op.inputs) > 1 else ("int32",)
    if op.outputs[0] not in short or op.shape not in ((), (1,)) or not writes(op):
        return False
    added = [run.ops[i.producer] for i in op.inputs[1:] if i.producer >= 0]
    still = lambda n: is_move(run.ops[n]) or n == v.op
    counted = name_of(op) in ("add", "sub") and v.spoilt * _SELDOM <= v.exact and len(added) == len(op.inputs) - 1
    counted = counted and all(tagged(o, "total") and [i.dtype for i in o.inputs] == ["bool"] for o in added)
    before = [n for n in graph.first_operands(run.ops, op.inputs[0].producer) if not is_move(run.ops[n])]
    fresh = all(not run.ops[n].inputs or tagged(run.ops[n], "store") for n in before[:1])
    uses = [n for n, _ in run.below([v.op], still, FAR) if not still(n)]
    return counted and fresh and bool(uses) and all(tagged(run.ops[n], "observed") for n in uses)


def _is_read_by_size(run: Run, v: Value, op: Op) -> bool:
    """Whether Python reads a single number that a few calls made, and divides or compares it: a generator of random
    numbers wraps again and again."""
    if prod(op.shape) != 1 or writes(op) or op.count > _FEW_CALLS and v.spoilt * _SELDOM > v.exact:
        return False
    stays = lambda n: run.moves(n) or tagged(run.ops[n], "sum", "product") and run.ops[n].outputs == op.outputs
    uses = [run.ops[n] for n, _ in run.below([v.op], stays, FAR) if not stays(n)]
    read = [dropwhile(lambda f: not f.user, run.place(use).stack) for use in uses if tagged(use, "observed")]
    return len(read) == len(uses) and any(expressions.by_size(run.recording.text, tuple(frames)) for frames in read)


_FEW_CALLS = 3


def _crosses(run: Run, number: int) -> bool:
    """Whether an op makes a tensor of an array that NumPy cast."""
    event = run.event_of(number) if name_of(run.ops[number]) == "lift_fresh" else -1
    return event >= 0 and bool(run.recording.events[event].source)


def _unchecked(run: Run, number: int) -> bool:
    """Whether integers tell things apart or are computed with as floating point, and neither they nor the numbers that
    were cast to them are compared with a bound: what is outside is often sorted out so."""
    above = graph.first_operands(run.ops, run.ops[number].inputs[0].producer)
    below = [n for n, _ in run.below([number], run.moves, FAR)]
    bounded = (user for n in above for user in run.users[n])
    if any(tagged(run.ops[n], "compare", "lower_bound", "upper_bound") for n in (*below, *bounded)):
        return False
    return tells_apart(run, number) or _quantities(run, [number])


def _all_zero(run: Run, v: Value, op: Op) -> bool:
    """Whether a cast to integers makes zero of next to all numbers, which differ, and the program computes with them
    beside other floating numbers: a part of a number and what it is the whole part of are no two quantities."""
    source = op.inputs[0].producer
    if op.outputs[0] in REAL or v.exact < _FEWEST or v.cut < _HASHED * v.exact:
        return False

    def beside(n: int, at: list[int]) -> bool:
        others = [i for index, i in enumerate(run.ops[n].inputs) if index not in at]
        apart = all(i.dtype in REAL and i.shape != () and source not in _near(run, i.producer) for i in others)
        return bool(others) and apart and tagged(run.ops[n], "difference", "product")

    stays = lambda n: run.moves(n) or tagged(run.ops[n], "scale") and len(run.ops[n].inputs) == 1
    below = [(n, at) for n, at in run.below([v.op], stays, FAR) if run.ops[n].phase in FORWARD]
    uses = [(n, at) for n, at in below if not stays(n) or 0 not in at]
    if not _is_below_one(run, source, [n for n, _ in below if is_cast(run.ops[n])]):
        return False
    return bool(uses) and all(beside(n, at) or tagged(run.ops[n], "observed") for n, at in uses)


def _none_left(run: Run, v: Value) -> bool:
    """Whether next to all numbers of Python's from which a call made integers had fractions and were below 1: whoever
    means zeros writes zeros."""
    return v.exact >= _FEWEST and v.cut >= _HASHED * v.exact and _used_as_numbers(run, v.op)


def _is_below_one(run: Run, number: int, casts: list[int]) -> bool:
    """Whether no number that an op made is beyond 1, or, where those were not measured, because NumPy made
    them: whether each is zero where it is cast from integers to floating point again."""
    peaks = (run.values[n].peak for n in _still(run, number) if n in run.values and run.values[n].measured)
    if (peak := next(peaks, -1.0)) >= 0:
        return 0 < peak <= 1
    back = [run.values[n] for n in casts if n in run.values and run.ops[n].outputs[0] in REAL]
    return any(v.measured for v in back) and not any(v.peak for v in back)


def _near(run: Run, number: int) -> set[int]:
    return {number, *graph.ops_above(run.ops, [number], most=FAR)}


def _still(run: Run, number: int) -> Iterator[int]:
    """An op, and those above it from which its result was only moved."""
    for n in graph.first_operands(run.ops, number):
        yield n
        if not is_move(run.ops[n]):
            return


def _only_sizes(run: Run, number: int) -> bool:
    """Whether integers are only taken by their size, as counts and dates: the last of their bits mean nothing there."""
    still = lambda n: is_move(run.ops[n])
    uses = [n for n, _ in run.below([number], still, FAR) if not still(n)]
    real = lambda op: op.outputs[:1] and op.outputs[0] in REAL and not tagged(op, "picks", "places")
    return bool(uses) and all(_by_size(run, n) or real(run.ops[n]) for n in uses)


def _taken_apart(run: Run, v: Value) -> bool:
    """Whether a cast of integers may wrap on purpose: what it made, perhaps subtracted since, or what it took goes on
    as bits or as a rest of a division; or nothing takes what it made, and that is the low bits of a product, or of
    numbers that next to never fit. A shift to the right that brings the sign of a wrapped number along, and whose
    result is a quantity, is no such use."""
    number = v.op
    dtype = run.ops[number].outputs[0]
    source = run.ops[number].inputs[-1].producer if run.ops[number].inputs else -1
    stays = lambda n: run.moves(n) or tagged(run.ops[n], "sum") and run.ops[n].outputs[0] == dtype
    below = [n for n, _ in run.below([number], stays, FAR)]
    shifted = [n for n in below if tagged(run.ops[n], "signed_shift") and run.ops[n].outputs[0] == dtype]
    if dtype.startswith("int") and _quantities(run, shifted):
        return False
    made = [run.ops[n] for n in (*below, *_came_back(run, below, dtype))]
    taken = [run.ops[n] for n, _ in run.below([source], run.moves, FAR)] if source >= 0 else []
    used = any(not (is_move(op) or tagged(op, "equal", "like")) for op in made)
    # products that were added up one after the other are offsets
    above = graph.ops_above(run.ops, [source], lambda op: () if _adds_up(op) else op.inputs, most=FAR)
    low = v.spoilt >= _HASHED * v.exact or any(_of_bits(run.ops[n]) or tagged(run.ops[n], "product") for n in above)
    return not used and low or any(map(_of_bits, (*made, *taken)))


def _came_back(run: Run, below: list[int], dtype: str) -> list[int]:
    """The uses of tensors of a dtype that were made of what is outside torch, where integers of that dtype went there:
    they may be those that were written to a file."""
    if not any(run.ops[n].op == "numpy" for n in below):
        return []
    back = [n for n, op in enumerate(run.ops) if name_of(op) == "lift_fresh" and op.outputs == (dtype,)]
    widens = lambda n: run.moves(n) or is_cast(run.ops[n]) and REAL.isdisjoint(run.ops[n].outputs[:1])
    uses = [n for n, _ in run.below(back, widens, FAR) if not widens(n)]
    return uses if all(_of_bits(run.ops[n]) for n in uses) else []


def _adds_up(op: Op) -> bool:
    return tagged(op, "running") and tagged(op, "total")


def _is_phase(run: Run, number: int) -> bool:
    """Whether integers that wrap are only used as angles, and the whole range of their dtype is so many full turns:
    then they wrap where the angle does."""
    dtype = DTYPES[run.ops[number].outputs[0]]
    still = lambda n: tagged(run.ops[n], "sum", "product") or run.moves(n)
    wraps = lambda n: run.ops[n].outputs[:1] == (dtype.name,) and still(n)
    used = [n for n, _ in run.below([number], wraps, FAR) if not wraps(n)]
    turns = [_largest_angle(run, n, dtype.largest) / tau * 2.0**dtype.bits / dtype.largest for n in used]
    return bool(turns) and all(round(t) >= 1 and abs(t - round(t)) < _TURN for t in turns)


def _largest_angle(run: Run, number: int, largest: float) -> float:
    """What an op that takes integers makes of their dtype's largest, scaled since, where that is only used as an angle;
    else 0. What is done to all numbers alike shows in their peaks; what wraps comes near to its limits."""
    scales = lambda n: run.moves(n) or tagged(run.ops[n], "scale")
    ends = [n for n, _ in run.below([number], scales, FAR) if not scales(n)] if scales(number) else []
    if not ends or not all(tagged(run.ops[n], "angle") for n in ends):
        return 0.0
    given = run.peaks.get(number, 0.0) if is_cast(run.ops[number]) else largest
    angle = min(run.peaks.get(run.ops[n].inputs[0].producer, 0.0) for n in ends)
    return angle / given * largest if given else 0.0


def _of_bits(op: Op) -> bool:
    """Whether an op takes numbers by their bits, or by their rest: also what it reads as another dtype."""
    read_otherwise = op.effect == "view" and bool(op.inputs) and op.inputs[0].dtype != op.outputs[0]
    return read_otherwise or tagged(op, "bits", "remainder")


def _above(run: Run, number: int) -> frozenset[int]:
    """The ops by which the numbers that an op writes were computed, and itself; what chose among them does not
    count."""
    operands = [i.producer for i in run.ops[number].inputs[1:]]
    above = graph.ops_above(run.ops, operands, lambda op: (i for i in op.inputs if i.dtype in REAL))
    return frozenset({number, *above})


def _base(run: Run, op: Op) -> list[int]:
    """The ops that made the tensor into which an op writes, through views."""
    found: list[int] = []
    for number in graph.first_operands(run.ops, op.inputs[0].producer):
        found.append(number)
        if not is_move(run.ops[number]):
            break
    return found


def _were_integers(run: Run, op: Op) -> bool:
    """Whether numbers that an op makes integers were integers, and only moved since they became floating numbers. Where
    it was compared with what it would choose of wider ones, that is told (``decisions``)."""
    known = (*run.recording.spot_checks, *run.recording.precisions)
    if any(p.others >= _CHOSEN and run.ops[p.op] is op for p in known):
        return False
    for number in graph.first_operands(run.ops, op.inputs[0].producer):
        above = run.ops[number]
        if is_cast(above) and above.inputs[0].dtype in INTEGERS:
            v = run.values.get(number)  # of 16 bits, not measured there
            return above.outputs[0] in HALF or v is not None and v.cut >= _LARGE * v.exact > 0
        if not run.moves(number):
            return False
    return False


def _given(run: Run, op: Op) -> bool:
    """Whether the numbers that an op casts are data as they were given: only moved or copied since, or none that the
    same call made was ever computed with, however a loader's call joined them."""
    event = op.inputs[0].event
    if event >= 0 and run.recording.events[event].how == "conversion":
        takers = (o for o in run.ops if any(i.event == event for i in o.inputs))
        if all(is_move(o) or is_cast(o) or tagged(o, "join", "picks", "observed") for o in takers):
            return True
    for number in graph.first_operands(run.ops, op.inputs[0].producer):
        above = run.ops[number]
        if not above.inputs:
            return name_of(above) == "lift_fresh"
        if not is_move(above) and not (is_cast(above) and above.inputs[0].dtype == above.outputs[0]):
            return False
    return True


def _joined(run: Run, op: Op) -> Op | None:
    """The op that joined integers with floating numbers and made what an op casts, only moved since; None for none."""
    for number in graph.first_operands(run.ops, op.inputs[0].producer):
        above = run.ops[number]
        if tagged(above, "join") and above.outputs[0] in REAL and any(i.dtype in _IDS for i in above.inputs):
            return above
        if not is_move(above):
            break
    return None


# ---------------------------------------------------------------- findings


def _wrapped(run: Run, v: Value, op: Op) -> Finding:
    return wrapped.find(run, v, op, keys=tells_apart(run, v.op))


def _store_of(run: Run, v: Value, op: Op) -> int:
    """The write that stores numbers in a tensor of integers whose dtype they were put into just before, because it has
    that dtype: a number of Python's, or a cast to ``x.dtype``; -1 for none."""
    if op.inputs:
        event = run.event_of(v.op) if is_cast(op) and v.cut else -1
        reads = [r.event for r in run.recording.events[event].reads] if event >= 0 else []
        if not reads:
            return -1
    elif op.outputs[0] in REAL:
        return -1
    takers = run.below([v.op], lambda n: run.moves(n) and not writes(run.ops[n]), FAR)
    stores = (n for n, at in takers if writes(run.ops[n]) and 0 not in at)
    return next((n for n in stores if run.ops[n].inputs[0].dtype not in REAL), -1)


def _cut_off(run: Run, number: int, store: int, lost: int, of: int) -> Finding | None:
    """Fractions that an op cuts off, and where the whole numbers were stored; None where these are no quantities."""
    op = run.ops[store]
    target, base = op.inputs[0], _base(run, op)
    summed = number != store and not tagged(op, "store")  # numbers with fractions that are added up are quantities
    if lost < _FRACTIONS * of or not (summed or _quantities(run, base, _above(run, number) - {store}, target.event)):
        return None
    value = next((i.dtype for i in run.ops[number].inputs if i.dtype in REAL), "float32")
    written = run.operand(op, 0, None)
    like = _made_like(run, op) or run.asked_like(target)
    if like is not None:
        written = Operand(0, written.name, target.dtype, target.shape, op.device, None, like, written.written)
    said = f"{lost:,} of {of:,} sampled numbers had a fraction, which {target.dtype} cuts off"
    made = "float32" if summed and value in HALF else value
    edit = editing.at_birth(run.recording, written.origin.kind, written.origin.place, made)
    if edit is not None and edit.change.target == CAST and tagged(written.origin.op or "", "takes_dtype"):
        edit = None  # it would cast what a library makes: of a module, the integers stay
    fix = advise(written.origin.place, f"give {quoted(written.shown)} dtype=torch.{made} where it is made", edits=edit)
    begins, dtypes = graph.flow(run.recording, target.event, None), {"source": value, "made": target.dtype}
    return found_at(run, op, "DT203", written, fix, begins=begins, **dtypes, how="copy", said=said)


def _filled(run: Run, op: Op) -> Finding:
    """One number with a fraction, put into integers."""
    place, made = run.place(op), op.outputs[0]
    culprit = result_of(run, op, "factory")
    fix = advise(place, "give this tensor a floating dtype where it is made")
    said = f"the number has a fraction, which {made} cuts off"
    return found_at(run, op, "DT203", culprit, fix, source="python float", made=made, how="copy", said=said)


def _emptied(run: Run, v: Value, op: Op) -> Finding:
    """Different numbers below one, all of which are zero as integers."""
    place, made, source = run.place(op), op.outputs[0], op.inputs[0].dtype if op.inputs else "python float"
    how, what = ("cast", f"a cast to {made}") if op.inputs else ("copy", f"`{op.op}` in {made}")
    culprit = result_of(run, op, "cast" if op.inputs else "factory")
    fix = advise(place, "leave this cast out", edits=editing.uncast(run.recording, place))
    if not op.inputs:
        edit = editing.at_birth(run.recording, "factory", place, "float32") if op.count == 1 else None
        fix = advise(place, "give this tensor a floating dtype where it is made", edits=edit)
    said = f"{v.cut:,} of {v.exact:,} sampled numbers lie between -1 and 1, and are 0 in {made}"
    title = f"{what} makes zeros of numbers that are computed with"
    return found_at(run, op, "DT203", culprit, fix, source=source, made=made, how=how, said=said, title=title)


def _joins_floats(run: Run, number: int) -> bool:
    """Whether what an op made is put beside floating numbers that do not come from it."""
    stays = lambda n: run.moves(n) or is_cast(run.ops[n])
    uses = ((n, at) for n, at in run.below([number], stays, FAR) if tagged(run.ops[n], "join"))
    return any(i.dtype in REAL for n, at in uses for index, i in enumerate(run.ops[n].inputs) if index not in at)


def _emptied_by_numpy(run: Run, v: Value, op: Op) -> Finding:
    """Numbers between -1 and 1 of which NumPy made zeros, in a table that is used as floating numbers."""
    event = run.event_of(v.op)
    origin, known = run.origin(event, None), run.recording.events[event]
    made = known.source[0]
    culprit = Operand(0, f"result of {known.op}", made, op.shape, op.device, None, origin)
    fix = advise(origin.place, "keep these numbers in the dtype that they have before this cast")
    said = f"{v.cut:,} sampled numbers, whole columns, lie between -1 and 1, and are 0 in {made}"
    title = f"NumPy's cast to {made} makes zeros of numbers that are computed with"
    begins = graph.flow(run.recording, event, None)
    return found_at(run, op, "DT203", culprit, fix, begins=begins, made=made, how="cast", said=said, title=title)


def _used_as_numbers(run: Run, number: int) -> bool:
    """Whether what an op made meets floating numbers afterwards: what only counts or indexes is meant to be whole."""
    below = (n for n, _ in run.below([number], lambda n: run.ops[n].outputs[:1] != ("bool",), FAR))
    return any(i.dtype in REAL for n in below for i in run.ops[n].inputs)


def _made_like(run: Run, op: Op) -> Origin | None:
    """The factory that made what an op writes to, with the dtype of another tensor."""
    made = run.ops[_base(run, op)[-1]] if _base(run, op) else None
    if made is None or not tagged(made, "like"):
        return None
    return Origin("factory", None, made.op, run.place(made))


def _imaginary(run: Run, v: Value, op: Op) -> Finding:
    place, made = run.place(op), op.outputs[0]
    source = next(i.dtype for i in op.inputs if i.dtype in COMPLEX)
    culprit = result_of(run, op)
    said = f"{v.spoilt:,} of {v.exact:,} sampled numbers had an imaginary part, which {made} does not hold"
    fix = advise(place, "take .abs() where a magnitude is meant, or .real where only the real part is")
    title = "a cast drops the imaginary part of complex numbers"
    notes = ("what is computed from it has lost the phase, and a part of the magnitude",)
    return found_at(run, op, "DT203", culprit, fix, source=source, how="cast", said=said, title=title, notes=notes)


def _merged(run: Run, v: Value, op: Op) -> Finding:
    made, event = op.outputs[0], run.event_of(v.op) if _crosses(run, v.op) else -1
    by_numpy = event >= 0 and run.recording.events[event].told >= 0
    source = "" if by_numpy else f"{_source(op)} "
    what = f"{v.spoilt:,} of {v.exact:,} sampled neighbouring {source}numbers become equal in {made}"
    if v.spoilt < _MERGED * v.exact or not v.spoilt:
        what = f"{v.cut:,} sampled {source}numbers are others in {made}, and when they are integers again"
    origin = Origin("cast" if op.inputs else "conversion", None, op.op, run.place(op), True)
    called = run.recording.events[event].op if by_numpy else op.op
    origin = run.origin(event, None) if by_numpy else origin
    culprit = Operand(0, f"result of {called}", made, op.shape, op.device, None, origin)
    found = _indistinct(run, op, culprit, what, ())
    return replace(found, tried=Tried(called, run.place(op), v.spoilt / v.exact, 0.0, "spoilt")) if by_numpy else found


def _source(op: Op) -> str:
    """The dtype that an op casts from: Python and NumPy hand over float64."""
    return op.inputs[-1].dtype if op.inputs else "float64"


def _stopped(run: Run, v: Value, op: Op) -> Finding | None:
    """Counts that one call makes in the dtype of what it counts."""
    if not v.spoilt:
        return None
    culprit, made = run.operand(op, 0, None), op.outputs[0]
    enough, last = "float32" if made in HALF else "float64", 2 ** DTYPES[made].digits
    alike = _beside(run, v)
    if alike[0] != v.op:
        return None
    taken = (CallOperand(run.place(o), o.op, o.module, argument_of(o, 0), 0) for o in (run.ops[n] for n in alike))
    edits = all_of(editing.at_call(run.recording, t, enough) for t in taken)
    fits = sound(run, edits, DtypeChange(results=dict.fromkeys(alike, enough)))
    others = f", and what the other {len(alike) - 1} here take" if alike[1:] else ""
    change = f"cast {quoted(culprit.shown)} to {enough} in this call{others}"
    fix = advise(run.place(op), change, edits=edits if fits else ())
    said = f"{v.spoilt:,} of {v.exact:,} bins hold at most half of what they should"
    if made not in HALF:
        said = f"{v.spoilt:,} of {v.exact:,} bins hold {last:,} exactly, of more numbers than that"
    notes = (f"a bin that is counted in {made} stops at {last:,}",)
    begins = graph.flow(run.recording, op.inputs[0].event, None)
    title = f"{quoted(op.op)} stops counting in {made}"
    return found_at(run, op, "DT307", culprit, fix, begins=begins, made=made, said=said, title=title, notes=notes)


def _beside(run: Run, v: Value) -> list[int]:
    """The histograms that stop in the function in which one does."""
    function = lambda n: [(f.file, f.function) for f in run.place(run.ops[n]).stack[:1]]
    stop = (o.op for o in run.recording.values if o.spoilt and name_of(run.ops[o.op]) == "histc")
    return sorted(n for n in stop if function(n) == function(v.op))


def _coarse(run: Run, v: Value, op: Op) -> Finding:
    culprit = run.operand(op, 0, None)
    finest = 2 ** DTYPES[culprit.dtype].digits
    what = f"{v.spoilt:,} of {v.exact:,} sampled numbers that are used as integers are above {finest:,}"
    flow = graph.flow(run.recording, op.inputs[0].event, None)
    if (joined := _joined(run, op)) is not None:
        origin = Origin("promotion", None, joined.op, run.place(joined))
        culprit, flow = Operand(0, f"result of {joined.op}", culprit.dtype, joined.shape, "", None, origin), ()
    return _indistinct(run, op, culprit, what, flow)


def _indistinct(run: Run, op: Op, culprit: Operand, what: str, flow: tuple[FlowStep, ...]) -> Finding:
    source = _source(op)
    told = _NUMBERS if source in REAL and op.outputs[:1] and op.outputs[0] in REAL else _integers(culprit.dtype)
    others = (told.alternative,) if told.alternative else ()
    fix, words = advise(culprit.origin.place, told.change, others=others), {"title": told.title}
    return found_at(
        run, op, "DT204", culprit, fix, begins=flow, source=source, how="cast", said=what, **words, notes=(told.limit,)
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """What is said of numbers that a dtype cannot distinguish."""

    title: str
    change: str
    alternative: str
    limit: str


def _integers(dtype: str) -> _Told:
    wider, digits = ("float32", 24) if dtype in HALF else ("float64", 53)
    return _Told(
        f"different integers are equal in {dtype}",
        "keep these numbers as integers, in a tensor of their own",
        f"{wider} holds integers up to 2**{digits}" if dtype != wider else "",
        f"{dtype} holds every integer up to {2 ** DTYPES[dtype].digits:,}, and beyond that only some",
    )


_NUMBERS = _Told(
    "different numbers are equal in float32",
    "subtract the first number, or the mean, from all these numbers in float64, and cast the differences",
    "compute with them in float64",
    "float32 keeps 7 decimal digits of a number, float64 keeps 16",
)
