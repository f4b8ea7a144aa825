"""The rows of all tables: one for each distinct op, cast, parameter or gradient, as plain values.

The frames and the HTML report show the same rows, so each number is computed in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from .. import graph
from ..records import Op, Place, Recording, Update, Value
from ..tables.dtypes import DTYPES, FLOATING, narrower, wider
from ..tables.operators import COMPILED, NAMED_CASTS, is_cast, is_move, result_bytes, tagged, writes

_NOWHERE = Place()
_MOST_OPS_BACK = 32
"""So many moves between two casts are looked through; recorded producers can form a loop."""


@cache
def family(dtype: str) -> str:
    """The group in which a dtype is counted and coloured: f64 f32 bf16 f16 f8 other, ``""`` for none. A complex dtype
    has the group of its parts."""
    if dtype not in FLOATING:
        return dtype and "other"
    return DTYPES[dtype].label


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
    """``cast``: one floating dtype in, another out; ``autocast``: the same, by autocast; ``write``: into a tensor of
    another dtype; ``promotion``: the result is as wide as the wider operand; else empty."""
    autocast: str
    count: int
    place: Place
    shape: tuple[int, ...] = ()
    """Of the first tensor that its first call returned."""


def ops(recording: Recording) -> tuple[OpRow, ...]:
    """One row for each distinct op, in the order in which they first ran."""
    return tuple(
        OpRow(
            n, o.phase, o.module, o.op, o.aten, tuple(i.dtype for i in o.inputs), o.outputs, change(o),
            o.autocast, o.count, place(recording, o.place), o.shape,
        )
        for n, o in enumerate(recording.ops)
    )  # fmt: skip


def phases(ops: Sequence[OpRow | Op]) -> list[str]:
    """The phase of each distinct op as people read it: of ops that belong to no phase, those before the first module
    are ``init`` and later ones ``outside``."""
    first = next((n for n, o in enumerate(ops) if o.module), 0)
    return [o.phase if o.phase != "other" else "init" if n < first else "outside" for n, o in enumerate(ops)]


def place(recording: Recording, number: int) -> Place:
    return recording.places[number] if 0 <= number < len(recording.places) else _NOWHERE


def change(op: Op) -> str:
    """How an op changed a floating dtype, see :class:`OpRow`."""
    into = [i.dtype for i in op.inputs if i.dtype in FLOATING]
    out = next((d for d in op.outputs if d in FLOATING), "")
    if not into or not out:
        return ""
    if is_cast(op) or len(op.inputs) == 1:
        return "" if into[0] == out else "autocast" if op.autocast and op.op not in NAMED_CASTS else "cast"
    if writes(op) and into[0] == out and any(d != out for d in into[1:]):
        return "write"
    if any(narrower(d, out) for d in into) and out in into and not any(wider(d, out) for d in into):
        return "promotion"
    return ""


# ---------------------------------------------------------------- casts


@dataclass(frozen=True, slots=True)
class CastRow:
    """All casts of one kind at one place. ``round_trip``: the value was cast the other way just before, and nothing was
    computed between."""

    source: str
    to: str
    change: str
    phase: str
    module: str
    op: str
    round_trip: bool
    count: int
    bytes: int
    """Of all its results, by the shapes of the first call."""
    place: Place


def casts(recording: Recording, rows: tuple[OpRow, ...] | None = None) -> tuple[CastRow, ...]:
    """The cast ledger: every change of a floating dtype that is not a promotion, the most frequent first."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    rows = ops(recording) if rows is None else rows
    for row in rows:
        if row.change in ("cast", "autocast", "write"):
            source, to = _ends(row)
            key = (source, to, row.change, row.phase, row.module, row.op, recording.ops[row.number].place)
            known = found.setdefault(key, [False, 0, 0, row.place])
            known[0] = known[0] or _returns(recording, rows, row)
            known[1] += row.count
            known[2] += row.count * result_bytes(recording.ops[row.number])
    made = (CastRow(*key[:6], *rest) for key, rest in found.items())
    return tuple(sorted(made, key=lambda c: -c.count))


def _ends(row: OpRow) -> tuple[str, str]:
    """The dtypes that a cast leads from and to."""
    to = next(d for d in row.outputs if d in FLOATING)
    into = [d for d in row.inputs if d in FLOATING]
    return next((d for d in into if d != to), into[0]), to


def _returns(recording: Recording, rows: tuple[OpRow, ...], row: OpRow) -> bool:
    """Whether a cast undoes the one before it, with only ops between that move values."""
    source, to = _ends(row)
    number = next((i.producer for i in recording.ops[row.number].inputs if i.dtype == source), -1)
    for _ in range(_MOST_OPS_BACK):
        if number < 0:
            return False
        above = rows[number]
        if above.change in ("cast", "autocast"):
            return _ends(above) == (to, source)
        if not is_move(recording.ops[number]) or not recording.ops[number].inputs:
            return False
        number = recording.ops[number].inputs[0].producer
    return False


# ---------------------------------------------------------------- parameters, gradients, values


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
        event = recording.events[p.event] if 0 <= p.event < len(recording.events) else None
        where = place(recording, event.place) if event else _NOWHERE
        rows.append(ParameterRow(p.name, p.name.rpartition(".")[0], p.dtype, p.size, event.how if event else "", where))
    return tuple(rows)


def moved(update: Update) -> float:
    """The share of the numbers with a gradient that any step changed; NaN where nothing was measured or none had a
    gradient."""
    return update.moved / update.reached if update.reached else float("nan")


def values(recording: Recording) -> list[tuple[Value, Op]]:
    """The measured values of ops that made or held infinities or NaNs, or that flushed numbers to zero."""
    return [(v, recording.ops[v.op]) for v in recording.values if v.made or v.bad or v.flushed or v.vanished]


@dataclass(frozen=True, slots=True)
class CompiledRow:
    """What compiled code makes of one call of the program. Dtypes are empty where there is none."""

    region: str
    """The function that was compiled."""
    op: str
    module: str
    phase: str
    file: str
    line: int
    says: str
    """The dtype by the program's own meaning; forward only."""
    computes: str
    """That of the compiled graph."""
    kernel: str
    """That in which its kernel hands it on."""
    saved: str
    """That in which it is kept for the backward pass."""
    memory: str
    """That in which it is written to memory."""


def compiled(recording: Recording) -> list[CompiledRow]:
    """Each call of the program in each compiled region, forward and backward."""
    from ..rules.compiled_flow import Flow  # rules are not loaded for a run without compiled code

    rows = ((region, made) for region in recording.regions for made in Flow(region).lines())
    return [CompiledRow(r.name, *made[:3], *user_line(place(recording, made.place)), *made[4:]) for r, made in rows]


class Inside(NamedTuple):
    """An operator of a compiled graph, beside the op that stands for the graph's call."""

    op: int
    phase: str
    module: str
    """Below that of the call, as far as it is known."""
    dtype: str
    nbytes: int


def inside_compiled(recording: Recording) -> Iterator[Inside]:
    """What compiled code computes: the operators of its graphs, without views."""
    backward = {op.of: n for n, op in enumerate(recording.ops) if op.aten == COMPILED and op.phase == "backward"}
    module = cache(partial(graph.module_below, frozenset(recording.modules)))
    for region in recording.regions:
        for made in region.graphs:
            number = region.call if made.phase == "forward" else backward.get(region.call, -1)
            around = recording.ops[region.call].module if number >= 0 else ""
            for node in made.nodes if number >= 0 else ():
                if node.op in ("input", "saved", "constant") or not node.dtype or tagged(node.op, "view"):
                    continue
                yield Inside(number, made.phase, module(around, node.module), node.dtype, node.nbytes)


def user_line(where: Place) -> tuple[str, int]:
    """File and line of the user's own innermost frame; of the innermost frame where none is the user's."""
    frame = where.user_frame
    return (frame.file, frame.line) if frame is not None else ("", 0)


def module_calls(recording: Recording) -> dict[str, int]:
    """How often each module's forward was called, by name; modules that the program gives the same name count
    together. Empty where that was not recorded."""
    calls: dict[str, int] = {}
    for name, count in zip(recording.modules, recording.module_calls):
        if name:
            calls[name] = calls.get(name, 0) + count
    return calls


def module_results(recording: Recording) -> dict[str, set[str]]:
    """The floating dtypes that each module's forward returned, by name; without the modules that were not called."""
    results: dict[str, set[str]] = {}
    for name, count, dtypes in zip(recording.modules, recording.module_calls, recording.module_results):
        if name and count:
            results.setdefault(name, set()).update(FLOATING.intersection(dtypes))
    return results
