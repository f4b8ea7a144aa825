"""What the tables hold: one row for each distinct op, cast, parameter or gradient. Plain values, standard library only.

The frames and the HTML report show the same rows, so a number is worked out in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Iterator

from .records import FLOATING, Op, Place, Recording

MOVING = frozenset(
    "view reshape transpose t permute expand expand_as squeeze unsqueeze slice select contiguous clone detach alias unflatten"
    " flatten chunk split unbind narrow __getitem__ getitem movedim swapaxes view_as reshape_as unfold as_strided repeat".split()
)
"""Ops that move or copy values and compute none."""

_NOWHERE = Place()


@lru_cache(maxsize=None)
def width(dtype: str) -> int:
    """Bits of one number (``float8_e4m3fn``: 8, ``complex64``: 32 for each part), 0 where the name tells none."""
    digits = ""
    for character in dtype.removeprefix("b").removeprefix("complex").removeprefix("float"):
        if not character.isdigit():
            break
        digits += character
    return (int(digits) if digits else 0) // (2 if dtype.startswith("complex") else 1)


@lru_cache(maxsize=None)
def family(dtype: str) -> str:
    """The group that a dtype is counted and coloured in: f64 f32 bf16 f16 f8 other, ``""`` for none."""
    if not dtype:
        return ""
    if dtype == "bfloat16":
        return "bf16"
    if dtype not in FLOATING:
        return "other"
    return f"f{width(dtype)}"


@dataclass(frozen=True, slots=True)
class OpRow:
    """One distinct op. ``number`` is its index in the recording; dtypes are those of the tensors, in order."""

    number: int
    phase: str
    module: str
    op: str
    aten: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    change: str
    """``cast`` one floating dtype in, another out; ``autocast`` the same, by autocast; ``write`` into a tensor of another
    dtype; ``promotion`` the result is as wide as the wider operand; else empty."""
    autocast: str
    count: int
    place: Place


def ops(recording: Recording) -> tuple[OpRow, ...]:
    """One row for each distinct op, in the order in which they first ran."""
    made = _made_by(recording)
    return tuple(
        OpRow(
            n, o.phase, o.module, o.op, o.aten, tuple(i.dtype for i in o.inputs), o.outputs, change(o, made.get(n, "")),
            o.autocast, o.count, place(recording, o.place),
        )
        for n, o in enumerate(recording.ops)
    )  # fmt: skip


def place(recording: Recording, number: int) -> Place:
    return recording.places[number] if 0 <= number < len(recording.places) else _NOWHERE


def _made_by(recording: Recording) -> dict[int, str]:
    """For each op whose output was used: by which kind of step it came by its dtype."""
    return {
        i.producer: recording.steps[i.step].how
        for o in recording.ops
        for i in o.inputs
        if i.producer >= 0 and 0 <= i.step < len(recording.steps)
    }


def change(op: Op, how: str = "") -> str:
    """How an op changed a floating dtype, see :class:`OpRow`. ``how`` is that of the step by which its output came by its dtype."""
    into = [i.dtype for i in op.inputs if i.dtype in FLOATING]
    out = next((d for d in op.outputs if d in FLOATING), "")
    if not into or not out:
        return ""
    if len(op.inputs) == 1 and into[0] != out:
        return "autocast" if how == "autocast" else "cast"
    if op.aten.partition(".")[0].endswith("_") and into[0] == out and any(d != out for d in into[1:]):
        return "write"
    if len(set(into)) > 1 and any(width(d) < width(out) for d in into) and max(map(width, into)) <= width(out) and how != "factory":
        return "promotion"
    return ""


# ---------------------------------------------------------------- casts


@dataclass(frozen=True, slots=True)
class CastRow:
    """All casts of one kind at one place. ``round_trip``: the value had just been cast the other way, nothing computed between."""

    source: str
    to: str
    change: str
    phase: str
    module: str
    op: str
    round_trip: bool
    count: int
    place: Place


def casts(recording: Recording, rows: tuple[OpRow, ...] | None = None) -> tuple[CastRow, ...]:
    """The cast ledger: every change of a floating dtype that is no promotion, most frequent first."""
    found: dict[tuple, list] = {}
    rows = ops(recording) if rows is None else rows
    for row in rows:
        if row.change in ("cast", "autocast", "write"):
            source, to = _ends(row)
            key = (source, to, row.change, row.phase, row.module, row.op, recording.ops[row.number].place)
            known = found.setdefault(key, [False, 0, row.place])
            known[0] = known[0] or _returns(recording, rows, row)
            known[1] += row.count
    made = (CastRow(*key[:6], trip, count, where) for key, (trip, count, where) in found.items())
    return tuple(sorted(made, key=lambda c: -c.count))


def _ends(row: OpRow) -> tuple[str, str]:
    """From which dtype to which a cast led."""
    to = next(d for d in row.outputs if d in FLOATING)
    into = [d for d in row.inputs if d in FLOATING]
    return next((d for d in into if d != to), into[0]), to


def _returns(recording: Recording, rows: tuple[OpRow, ...], row: OpRow) -> bool:
    """Whether a cast undoes the one before it, with at most ops between that move values."""
    source, to = _ends(row)
    number = next((i.producer for i in recording.ops[row.number].inputs if i.dtype == source), -1)
    for _ in range(32):
        if number < 0:
            return False
        above = rows[number]
        if above.change in ("cast", "autocast"):
            return _ends(above) == (to, source)
        if above.op not in MOVING or not recording.ops[number].inputs:
            return False
        number = recording.ops[number].inputs[0].producer
    return False


# ---------------------------------------------------------------- parameters, gradients, operators


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """One floating parameter or buffer: its numbers, and the event that decided its dtype."""

    name: str
    module: str
    dtype: str
    size: int
    origin: str
    place: Place


def parameters(recording: Recording) -> tuple[ParameterRow, ...]:
    """Every floating parameter and buffer of the models that were called, in the model's order."""
    rows = []
    for p in recording.parameters:
        step = recording.steps[p.step] if 0 <= p.step < len(recording.steps) else None
        where = place(recording, step.place) if step else _NOWHERE
        rows.append(ParameterRow(p.name, p.name.rpartition(".")[0], p.dtype, p.size, step.how if step else "", where))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class GradientRow:
    """What the backward pass of one module made in one floating dtype, beside the dtype of its own parameters."""

    module: str
    dtype: str
    parameters: str
    ops: int
    count: int

    @property
    def differs(self) -> bool:
        return bool(self.parameters) and self.parameters != self.dtype


def gradients(recording: Recording) -> tuple[GradientRow, ...]:
    """One row for each module and floating dtype that its backward ops made."""
    own: dict[str, set[str]] = {}
    for p in recording.parameters:
        own.setdefault(p.name.rpartition(".")[0], set()).add(p.dtype)
    found: dict[tuple[str, str], list[int]] = {}
    for op in recording.ops:
        if op.phase == "backward":
            for dtype in {d for d in op.outputs if d in FLOATING}:
                counted = found.setdefault((op.module, dtype), [0, 0])
                counted[0] += 1
                counted[1] += op.count
    return tuple(
        GradientRow(module, dtype, ", ".join(sorted(own.get(module, ()))), n, count) for (module, dtype), (n, count) in found.items()
    )


def operators(recording: Recording) -> dict[str, dict[str, int]]:
    """For each op the calls that made a first output of each dtype (``""``: none)."""
    found: dict[str, dict[str, int]] = {}
    for op in recording.ops:
        calls = found.setdefault(op.op, {})
        dtype = op.outputs[0] if op.outputs else ""
        calls[dtype] = calls.get(dtype, 0) + op.count
    return found


def user_line(where: Place) -> tuple[str, int]:
    """File and line of the user's own innermost frame; of the innermost of all where none is the user's."""
    frame = where.user_frame
    return (frame.file, frame.line) if frame is not None else ("", 0)


def distinct_dtypes(recording: Recording) -> Iterator[str]:
    """Every dtype that an op made or a parameter has."""
    yield from {d for o in recording.ops for d in o.outputs} | {p.dtype for p in recording.parameters}
