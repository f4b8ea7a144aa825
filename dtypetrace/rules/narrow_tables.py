"""Tables that should be wide and are not (DT204): positions, angles, time steps, cumulative products.

With p bits of precision a dtype tells 2**p neighbouring integers apart: 256 in bfloat16, 2,048 in float16. Beyond that,
positions coincide; and an angle of that many radians, a position times a frequency, is off by half a radian, whether
the position was rounded or the frequency. A product of n rounded factors is off by about n halves of the last bit.

What is judged is a table: something made from factories and integers alone. Data and weights that pass a sine or
a cumulative product may be as coarse as the rest of the model. Integers that are cast to such a dtype and back, with only
moves between, are judged by the largest: token ids in a batch that was halved whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from .. import graph
from ..records import Finding, Fix, FlowStep, Op, Reach
from ..source import editing
from ..tables.codes import TITLES
from ..tables.dtypes import DTYPES, REAL
from ..tables.operators import SEQUENCES, is_cast, is_move, name_of
from .remedies import short
from .silent import FORWARD, Run

_NARROW = frozenset(name for name in REAL if DTYPES[name].digits <= DTYPES["float16"].digits)
_ANGLES = frozenset({"sin", "cos", "polar"})
_OFF = 0.25
"""A cumulative product that may be off by so much of itself is none."""
_NO_TABLE = ("empty", "new_empty", "rand", "normal", "uniform", "bernoulli", "exponential", "multinomial", "poisson")
"""What begins with random numbers, or with memory that is filled out of sight, is none."""
_DEEP = 24
"""So many ops back, a table has begun."""


@dataclass(frozen=True)
class _Source:
    """What a table was made from: whether from nothing but factories and integers, its counts, its narrow operands."""

    pure: bool
    counted: int
    """How many neighbours there were to tell apart: the length of an ``arange``, or the largest integer that was cast."""
    narrow: tuple[tuple[int, int], ...]
    """The op and operand at which something narrow went in, the first to come last."""


def _neighbours(dtype: str) -> float:
    """How many whole numbers in a row a narrow dtype can tell apart; infinitely many, for our purpose, in any other."""
    return 2.0 ** DTYPES[dtype].digits if dtype in _NARROW else float("inf")


def find(run: Run) -> list[Finding]:
    """One finding for each place where a table's dtype was decided."""
    found: dict[tuple, Finding] = {}
    for number, op in enumerate(run.ops):
        if op.phase not in FORWARD or not op.outputs:
            continue
        for f in _judged(run, number, op) if op.outputs[0] in REAL else counted_back(run, number, op):
            found.setdefault(f.culprit.origin.place.stack[:1] or (f.culprit.name,), f)
    return list(found.values())


def _judged(run: Run, number: int, op: Op):
    name, made = name_of(op), op.outputs[0]
    if name in SEQUENCES and prod(op.shape) > _neighbours(made):
        yield table_finding(run, number, -1, f"{prod(op.shape):,} numbers in a row")
    elif name in _ANGLES:
        source = source_of(run, number)
        if source.pure and source.narrow:
            at, index = source.narrow[-1]
            dtype = run.ops[at].inputs[index].dtype
            if source.counted > _neighbours(dtype):
                yield table_finding(run, at, index, f"angles of up to {source.counted:,} positions", op)
    elif name == "cumsum" and made in _NARROW:
        source = source_of(run, number)
        if source.pure and source.narrow and source.counted > _neighbours(made):
            yield table_finding(run, *source.narrow[-1], f"counts up to {source.counted:,}", op)
    elif name == "cumprod" and made in _NARROW and op.shape and max(op.shape) * DTYPES[made].rounding >= _OFF:
        source = source_of(run, number)
        if source.pure and source.narrow:
            yield table_finding(run, *source.narrow[-1], f"a product of {max(op.shape):,} factors", op)


def _largest(op: Op) -> int:
    """Of the integers that an op cast, as far as the dtype can tell."""
    return int(min(op.peak or 0, 2.0**62))


def counted_back(run: Run, number: int, op: Op):
    """An op that makes integers again of integers that a narrow dtype could not hold."""
    if not is_cast(op) or not op.inputs or op.inputs[0].dtype not in _NARROW:
        return
    dtype, above = op.inputs[0].dtype, op.inputs[0].producer
    while above >= 0:
        before = run.ops[above]
        if is_cast(before) and before.inputs and before.inputs[0].dtype not in REAL:
            if (largest := _largest(before)) > _neighbours(dtype):
                what = f"integers of up to {largest:,}" if before.peak < inf else f"integers that outgrow {dtype}"
                yield table_finding(run, number, 0, what, op, back=True)
            return
        if not is_move(before) or len(before.inputs) != 1:
            return
        above = before.inputs[0].producer


def source_of(run: Run, number: int) -> _Source:
    """Walks up from an op to what its values were made from."""
    pure, counted, narrow, seen, front = True, 0, {}, set(), [(number, 0)]
    while front:
        at, depth = front.pop()
        if at in seen:
            continue
        seen.add(at)
        op = run.ops[at]
        real = [i for i in op.inputs if i.dtype in REAL]
        if name_of(op) in SEQUENCES:
            counted = max(counted, prod(op.shape))
        if is_cast(op) and op.inputs and op.inputs[0].dtype not in REAL:
            counted = max(counted, _largest(op))
        if name_of(op) == "cumsum" and at in run.peaks:
            counted = max(counted, int(run.peaks[at]))
        pure = pure and not name_of(op).startswith(_NO_TABLE) and all(i.holder is None for i in real) and depth < _DEEP
        for index, i in enumerate(op.inputs):
            if i.dtype in _NARROW:
                narrow[at, index] = None
            if i.producer >= 0:
                front.append((i.producer, depth + 1))
            elif i.dtype in REAL and i.step >= 0 and run.recording.steps[i.step].how in ("input", "worker"):
                pure = False
    return _Source(pure, counted, tuple(sorted(narrow, reverse=True)))


def table_finding(run: Run, number: int, index: int, what: str, table: Op | None = None, *, back: bool = False) -> Finding:
    """``back``: these are integers on their way back to integers, and no table."""
    op = run.ops[number]
    table = table or op
    dtype = op.inputs[index].dtype if index >= 0 else op.outputs[0]
    place = run.place(table)
    # a cast to the model's own dtype is right for the stream and wrong for a table: the cast is the cause, not the model
    culprit = run.operand(op, index, dtype) if index >= 0 else run.result(number, dtype)
    step = op.inputs[index].step if index >= 0 else run.step_of(number)
    origin = culprit.origin
    # what the same cast did to weights is right: the table is to be kept out of it
    shared = any(i.holder == "parameter" and i.step == step for o in run.ops for i in o.inputs)
    makes = f"{table.op} makes a table of {dtype} numbers"
    edit = (
        editing.at_birth(run.recording, origin.kind, origin.place, "float32")
        if origin.place.stack and not shared
        else None
    )
    at = origin.place if origin.place.stack and not shared else place
    why = (
        "make the table in float32, and cast it when it is ready"
        if not shared
        else "keep the table out of the cast: make it here, in float32"
    )
    if back:  # the same cast may be right for what else it casts
        edit, why, makes = (
            None,
            f"leave the integers out of the cast: {short(place)} makes integers of them again",
            f"{table.op} takes {dtype} numbers for integers",
        )
    notes = [f"{what}: {dtype} tells {int(_neighbours(dtype)):,} neighbours apart, no more"]
    if table is not op and run.place(op).stack[:1] != place.stack[:1]:
        notes.append(f"{culprit.shown} goes in at {short(run.place(op))}, and {table.op} makes the table of it")
    flow = (
        *graph.flow(run.recording, step, dtype),
        FlowStep(place, table.op, table.module, dtype, table.outputs[0], "value", said=makes),
    )
    return Finding(
        code="DT204", kind="downcast", severity="warning", title=TITLES["DT204"], phase=table.phase, op=table.op, aten=table.aten,
        module=table.module, count=table.count, predicted=False, site=place, operands=(culprit,), culprit=culprit, flow=flow,
        fix=Fix("dtype", at, (edit,) if edit else (), edit is not None, why, ()),
        exception=None, notes=tuple(notes), reach=Reach(table.count, 0, 0),
    )  # fmt: skip
