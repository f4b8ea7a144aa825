"""Operators by dtype: what ran in which dtype, what autocast did to it, and what could not run in a lower one.

Facts of this run, for the settings of a trainer. Autocast's lists differ between devices, so none is looked up here.
Standard library only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..records import Op, Recording
from ..rules.run_facts import quantity
from ..tables.dtypes import REAL, narrower
from ..tables.english import some
from ..tables.operators import NAMED_CASTS, flops, is_cast, is_move
from ..terminal import seen
from . import listings

_Lacking = dict[str, tuple[str, tuple[str, ...]]]
"""By operator: the dtype for which it has no kernel, and the modules that called it."""
_PHASES = {"outside": "forward", "recompute": "forward"}


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator in one phase. The counts are of calls, by the dtype of their results."""

    op: str
    phase: str
    """``forward`` (what ran outside modules or was recomputed, too), ``backward`` or ``optimizer``."""
    f16: int
    bf16: int
    f32: int
    other: int
    flops: int
    """Floating point operations of all calls, if it is a matmul, a convolution or attention; else 0."""
    autocast: str
    """How autocast was seen to cast the operands: ``down`` to autocast's dtype, ``up`` to float32, ``promote`` to
    another operand's dtype, else empty."""
    outside: int
    """For matmuls and the like: calls in float32 outside autocast, in a run whose matmuls mostly ran under autocast."""
    no_kernel: str
    """The dtype for which a call was refused because torch has no kernel."""
    modules: tuple[str, ...]
    """The modules of the calls that ``outside`` counts, and of those that were refused."""
    f64: int = 0
    """How many of ``other`` are float64."""

    @property
    def calls(self) -> int:
        return self.f16 + self.bf16 + self.f32 + self.other


def operators(recording: Recording) -> tuple[OperatorRow, ...]:
    """One row for each operator and phase, the costliest first; ops that only move or cast numbers are left out."""
    groups: dict[tuple[str, str], list[Op]] = {}
    for op, phase in zip(recording.ops, listings.phases(recording.ops)):
        if op.outputs:
            groups.setdefault((op.op, _PHASES.get(phase, phase)), []).append(op)
    most = _mostly_autocast(recording)
    lacking = _lacking(recording)
    rows = [
        _row(recording, name, phase, ops, most, lacking)
        for (name, phase), ops in groups.items()
        if any(map(_computes, ops))
    ]
    ran = {(r.op, r.phase) for r in rows}
    for name, (dtype, modules) in lacking.items():
        if (name, "forward") not in ran:
            rows.append(OperatorRow(name, "forward", 0, 0, 0, 0, 0, "", 0, dtype, modules))
    return tuple(sorted(rows, key=lambda r: (-r.flops, -r.calls, r.op, r.phase)))


def plain(recording: Recording) -> list[dict[str, Any]]:
    """The rows as dictionaries for JSON."""
    return [{**asdict(row), "modules": list(row.modules)} for row in operators(recording)]


def _computes(op: Op) -> bool:
    dtypes = (*op.outputs, *(i.dtype for i in op.inputs))
    return bool(op.inputs) and not (is_move(op) or is_cast(op)) and not REAL.isdisjoint(dtypes)


def _row(recording: Recording, name: str, phase: str, ops: list[Op], most: bool, lacking: _Lacking) -> OperatorRow:
    # one call of `linear` is a transpose, a view and a matmul: count the operator that ran most often in a dtype
    calls: dict[str, dict[str, int]] = {}
    for op in filter(_computes, ops):
        counts = calls.setdefault(listings.family(op.outputs[0]), {})
        counts[op.aten] = counts.get(op.aten, 0) + op.count
    by = {family: max(counts.values()) for family, counts in calls.items()}
    outside = [
        op for op in ops if most and phase == "forward" and flops(op) and op.outputs[0] == "float32" and not op.autocast
    ]
    dtype, modules = lacking.get(name, ("", ())) if phase == "forward" else ("", ())
    return OperatorRow(
        op=name,
        phase=phase,
        f16=by.get("f16", 0),
        bf16=by.get("bf16", 0),
        f32=by.get("f32", 0),
        other=sum(n for family, n in by.items() if family not in ("f16", "bf16", "f32")),
        flops=sum(flops(o) * o.count for o in ops),
        autocast=_by_autocast(recording, ops),
        outside=sum(o.count for o in outside),
        no_kernel=dtype,
        modules=tuple(dict.fromkeys([*modules, *(o.module for o in outside)])),
        f64=by.get("f64", 0),
    )


def _by_autocast(recording: Recording, ops: list[Op]) -> str:
    """Which way autocast cast the operands of a function's calls, if a cast was seen."""
    ways = set()
    for op in ops:
        if op.autocast and is_cast(op) and op.op not in NAMED_CASTS and op.inputs and op.inputs[0].dtype in REAL:
            compute = op.autocast.partition(":")[2]
            if op.outputs[0] == compute:
                ways.add("down")
            elif narrower(op.inputs[0].dtype, op.outputs[0]):
                calls = [o for o in ops if _computes(o) and o.place == op.place]
                ways.add("promote" if any(_was_wide(recording, o, op) for o in calls) else "up")
    return " and ".join(sorted(ways))


def _was_wide(recording: Recording, call: Op, cast: Op) -> bool:
    """Whether a call had an operand that was as wide as autocast made another one."""
    made = [recording.ops[i.producer] for i in call.inputs if i.dtype == cast.outputs[0] and i.producer >= 0]
    return any(not (is_cast(o) and (o.op, o.place) == (cast.op, cast.place)) for o in made)


def _mostly_autocast(recording: Recording) -> bool:
    """Whether most matmuls and convolutions of forward ran under autocast."""
    counted = {True: 0, False: 0}
    for op in recording.ops:
        if op.phase in ("forward", "recompute", "other") and flops(op):
            counted[bool(op.autocast)] += op.count
    return counted[True] > counted[False]


def _lacking(recording: Recording) -> _Lacking:
    """The operators that were refused because they have no kernel: the dtype, and the modules that called them."""
    found: dict[str, tuple[str, list[str]]] = {}
    for r in recording.refused:
        if r.wants == "kernel":
            found_dtype = dict(r.dtypes).get("found") or next((w.dtype for w in r.witnesses if w.dtype in REAL), "")
            if found_dtype:
                modules = found.setdefault(r.op, (found_dtype, []))[1]
                if r.module and r.module not in modules:
                    modules.append(r.module)
    return {name: (dtype, tuple(modules)) for name, (dtype, modules) in found.items()}


def text(recording: Recording, most: int = 40) -> str:
    """The rows as a table for the console; below it, what ran outside autocast and what has no kernel."""
    rows = operators(recording)
    if not rows:
        return "operators by dtype: nothing computed"
    titles = ("operator", "phase", "f16", "bf16", "f32", "other", "f64", "work (FLOP)", "autocast")
    cells = [
        (
            r.op,
            r.phase,
            *(f"{n:,}" if n else "" for n in (r.f16, r.bf16, r.f32, r.other - r.f64, r.f64)),
            quantity(r.flops, "FLOP") if r.flops else "",
            r.autocast,
        )
        for r in rows
        if r.calls
    ]
    shown = [titles, *cells[:most]]
    widths = [max(len(row[n]) for row in shown) for n in range(len(titles))]
    number = range(2, 8)
    kept = [n for n in range(len(titles)) if n < _DTYPES or any(row[n] for row in shown[1:])]
    lines = [
        "  ".join(row[n].rjust(widths[n]) if n in number else row[n].ljust(widths[n]) for n in kept).rstrip()
        for row in shown
    ]
    if len(cells) > most:
        lines.append(f"{len(cells) - most} more operators")
    if any(row[1] == "init" for row in shown[1:]):
        lines.append("init: what ran before the first call of a module")
    lines.append("left out: casts, copies and views, and arithmetic of integers")
    for r in rows:
        at = f" in {_few(r.modules)}" if r.modules else ""
        if r.outside:
            lines.append(
                f"outside autocast: {r.op} ran in float32 {r.outside:,} time{'s' if r.outside != 1 else ''}{at}"
            )
        if r.no_kernel:
            wider = f"; {_few(r.modules)} need{'' if len(r.modules) > 1 else 's'} a wider dtype" if r.modules else ""
            lines.append(f"no kernel: {r.op} is not implemented for {r.no_kernel}{wider}")
    return "\n".join(map(seen, lines))


_DTYPES = 6
"""Columns that are always shown; the others only where they say something."""


def _few(names: tuple[str, ...]) -> str:
    return some([n or "no module" for n in names], 3)
