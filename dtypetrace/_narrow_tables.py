"""Tables that should be wide and are not (DT204): positions, angles, time steps, cumulative products.

With p bits of precision a dtype tells 2**p neighbouring integers apart: 256 in bfloat16, 2,048 in float16. Beyond that,
positions coincide; and an angle of that many radians, a position times a frequency, is off by half a radian, whether
the position was rounded or the frequency. A product of n rounded factors is off by about n halves of the last bit.

What is judged is a table: something made from factories and integers alone. Data and weights that pass a sine or
a cumulative product may be as coarse as the rest of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from . import _edits, graph
from ._codes import TITLES
from ._costs import name_of
from ._remedies import short
from ._silent import CASTS, FORWARD, REAL, Run
from .records import Finding, Fix, FlowStep, Op, Reach

_BITS = {"bfloat16": 8, "float16": 11, "float8_e4m3fn": 4, "float8_e4m3fnuz": 4, "float8_e5m2": 3, "float8_e5m2fnuz": 3}
_COUNTS = frozenset({"arange", "linspace", "range"})
_ANGLES = frozenset({"sin", "cos", "polar"})
_OFF = 0.25
"""A cumulative product that may be off by so much of itself is none."""
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


def find(run: Run) -> list[Finding]:
    """One finding for each place where a table's dtype was decided."""
    found: dict[tuple, Finding] = {}
    for number, op in enumerate(run.ops):
        if op.phase not in FORWARD or not op.outputs or op.outputs[0] not in REAL:
            continue
        for f in _judged(run, number, op):
            found.setdefault(f.culprit.origin.place.stack[:1] or (f.culprit.name,), f)
    return list(found.values())


def _judged(run: Run, number: int, op: Op):
    name, made = name_of(op), op.outputs[0]
    if name in _COUNTS and prod(op.shape) > 2 ** _BITS.get(made, 64):
        yield _finding(run, number, -1, prod(op.shape), f"{prod(op.shape):,} numbers in a row")
    elif name in _ANGLES:
        source = _source(run, number)
        if source.pure and source.narrow:
            at, index = source.narrow[-1]
            dtype = run.ops[at].inputs[index].dtype
            if source.counted > 2 ** _BITS.get(dtype, 64):
                yield _finding(run, at, index, source.counted, f"angles of up to {source.counted:,} positions", op)
    elif name == "cumprod" and made in _BITS and op.shape and max(op.shape) * 2.0 ** -_BITS[made] >= _OFF:
        source = _source(run, number)
        if source.pure and source.narrow:
            yield _finding(run, *source.narrow[-1], max(op.shape), f"a product of {max(op.shape):,} factors", op)


def _source(run: Run, number: int) -> _Source:
    """Walks up from an op to what its values were made from."""
    pure, counted, narrow, seen, front = True, 0, {}, set(), [(number, 0)]
    while front:
        at, depth = front.pop()
        if at in seen:
            continue
        seen.add(at)
        op = run.ops[at]
        real = [i for i in op.inputs if i.dtype in REAL]
        if name_of(op) in _COUNTS:
            counted = max(counted, prod(op.shape))
        if name_of(op) in CASTS and op.inputs and op.inputs[0].dtype not in REAL:
            counted = max(counted, int(op.peak or 0))
        pure = pure and all(i.holder is None for i in real) and depth < _DEEP
        for index, i in enumerate(op.inputs):
            if i.dtype in _BITS:
                narrow[at, index] = None
            if i.producer >= 0:
                front.append((i.producer, depth + 1))
            elif i.dtype in REAL and i.step >= 0 and run.recording.steps[i.step].how in ("input", "worker"):
                pure = False
    return _Source(pure, counted, tuple(sorted(narrow, reverse=True)))


def _finding(run: Run, number: int, index: int, count: int, what: str, table: Op | None = None) -> Finding:
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
    edit = _edits.at_birth(run.recording, origin.kind, origin.place, "float32") if origin.place.stack and not shared else None
    at = origin.place if origin.place.stack and not shared else place
    why = "make the table in float32, and cast it when it is ready" if not shared else "keep the table out of the cast: make it here, in float32"
    notes = [f"{what}: {dtype} tells {2 ** _BITS[dtype]:,} neighbours apart, no more"]
    if table is not op and run.place(op).stack[:1] != place.stack[:1]:
        notes.append(f"{culprit.shown} goes in at {short(run.place(op))}, and {table.op} makes the table of it")
    makes = FlowStep(place, table.op, table.module, dtype, table.outputs[0], "value", said=f"{table.op} makes a table of {dtype} numbers")
    flow = (*graph.flow(run.recording, step, dtype), makes)
    return Finding(
        code="DT204", kind="downcast", severity="warning", title=TITLES["DT204"], phase=table.phase, op=table.op, aten=table.aten,
        module=table.module, count=table.count, predicted=False, site=place, operands=(culprit,), culprit=culprit, flow=flow,
        fix=Fix("dtype", at, (edit,) if edit else (), edit is not None, why, ()),
        exception=None, notes=tuple(notes), reach=Reach(table.count, 0, 0),
    )  # fmt: skip
