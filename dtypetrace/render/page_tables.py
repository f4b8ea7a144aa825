"""The tables of the HTML report as plain data: each column is a list of its distinct entries and, for each row, the
index of its entry.

A table is ``{"id", "title", "about", "sort", "rows", "columns"}``. A column has ``label``, ``kind`` (text, dtypes,
number, bytes, flop, figure or flag), ``values`` (its distinct entries, in sorting order) and ``at`` (for each row the
entry's index). A column of numbers has its numbers in ``at`` and no ``values``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from ..parts import attempt
from ..records import Place, Recording
from . import census, listings, wording
from .layout import middle_cut

_LONGEST = 160
"""Characters of a name or path in a table: the middle of a longer one is left out."""
_MOST_DTYPES = 6
"""Dtypes of one call that a table names: an optimizer's op takes hundreds of tensors."""
_NUMBERS = "number", "bytes", "flop"


@dataclass(frozen=True)
class Column:
    """What a table shows of its rows. ``shown``: an entry as the page shows it; entries are sorted before that."""

    label: str
    kind: str
    entry: Callable[[Any], Any]
    shown: Callable[[Any], Any] = lambda entry: entry
    optional: bool = False
    """Left out where no row has anything in it."""

    def plain(self, rows: Sequence[Any]) -> dict[str, Any]:
        entries = [self.entry(row) for row in rows]
        if self.kind in _NUMBERS:
            return {"label": self.label, "kind": self.kind, "at": entries}
        distinct = sorted(set(entries))
        index = {entry: n for n, entry in enumerate(distinct)}
        values = [self.shown(entry) for entry in distinct]
        return {"label": self.label, "kind": self.kind, "values": values, "at": [index[entry] for entry in entries]}


def tables(recording: Recording, rows: Sequence[listings.OpRow]) -> list[dict[str, Any]]:
    """Operators by dtype, cast ledger, gradients, values, compiled code, all ops; a table without
    rows is left out."""
    lines = Lines()
    rows = [r if r.phase == shown else replace(r, phase=shown) for r, shown in zip(rows, listings.phases(rows))]
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "operators": lambda: _operators(recording),
        "casts": lambda: _casts(recording, rows, lines),
        "gradients": lambda: _gradients(recording),
        "values": lambda: _values(recording, lines),
        "compiled": lambda: _compiled(recording, lines),
        "ops": lambda: _ops(rows, lines),
    }
    made = [attempt(f"the table of {name}", make, {"rows": 0}) for name, make in makers.items()]
    return [t for t in made if t["rows"]]


def table(
    name: str, title: str, about: str, sort: tuple[int, int], rows: Sequence[Any], columns: Iterable[Column]
) -> dict[str, Any]:
    """sort: the column by which the table is sorted at first (-1: as the rows come), and whether up (1) or down."""
    shown = [c.plain(rows) for c in columns if not c.optional or any(map(c.entry, rows))]
    return {"id": name, "title": title, "about": about, "sort": list(sort), "rows": len(rows), "columns": shown}


class Lines:
    """The two columns of a table for a place, each computed once: the user's own line, and the library line below
    it."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._known: dict[int, tuple[tuple[str, int], tuple[str, int]]] = {}

    def columns(self, place: Callable[[Any], Place] = lambda row: row.place) -> tuple[Column, Column]:
        return (
            Column("your line", "text", lambda row: self._of(place(row))[0], _line),
            Column("library line", "text", lambda row: self._of(place(row))[1], _line),
        )

    def _of(self, place: Place) -> tuple[tuple[str, int], tuple[str, int]]:
        known = self._known.get(id(place))
        if known is None:
            user, inner = place.user_frame, place.stack[0] if place.stack else None
            below = (self.file(inner.file), inner.line) if inner is not None and inner is not user else ("", 0)
            own = (self.file(user.file), user.line) if user is not None else ("", 0)
            known = self._known[id(place)] = own, below
        return known

    def file(self, file: str) -> str:
        known = self._files.get(file)
        if known is None:
            known = self._files[file] = short(wording.relative(file).replace(os.sep, "/"))
        return known


def _line(entry: tuple[str, int]) -> str:
    return f"{entry[0]}:{entry[1]}" if entry[0] else ""


def short(name: str) -> str:
    return middle_cut(name, _LONGEST)


def _figure(number: float) -> float | None:
    """Three digits of a number; None for a number that JSON cannot hold."""
    return float(f"{number:.3g}") if math.isfinite(number) else None


def joined(dtypes: Sequence[str]) -> str:
    """Dtypes in words, repeats counted: ``float16, 3 float32``."""
    runs = [(len(list(same)), dtype) for dtype, same in groupby(dtypes)]
    words = ", ".join(f"{n} {dtype}" if n > 1 else dtype for n, dtype in runs[:_MOST_DTYPES])
    return words + (", …" if len(runs) > _MOST_DTYPES else "")


_OP = Column("op", "text", lambda row: row.op)
_PHASE = Column("phase", "text", lambda row: row.phase)
_MODULE = Column("module", "text", lambda row: row.module, short)


def _operator(row: listings.OpRow) -> str:
    name = row.aten.removesuffix(".default")
    return "" if name.partition(".")[0] == row.op else name


def _ops(rows: Sequence[listings.OpRow], lines: Lines) -> dict[str, Any]:
    about = (
        "Each distinct op once (same call in the program, module, phase and dtypes), in the order of the first call. "
        "Ran: the operator that an op ran, where its name is another. Shape: of the first call's result."
    )
    own, library = lines.columns()
    columns = (
        _OP,
        Column("in", "dtypes", lambda r: joined(r.inputs)),
        Column("out", "dtypes", lambda r: joined(r.outputs)),
        own,
        Column("ran", "text", _operator, optional=True),
        Column("shape", "text", lambda r: "×".join(map(str, r.shape)), optional=True),
        _MODULE,
        _PHASE,
        Column("calls", "number", lambda r: r.count),
        Column("change", "text", lambda r: r.change, optional=True),
        Column("autocast", "text", lambda r: r.autocast, optional=True),
        library,
    )
    return table("ops", "All ops", about, (-1, 1), rows, columns)


def _operators(recording: Recording) -> dict[str, Any]:
    about = (
        "Calls of each operator that computes, by the dtype of its result, the costliest first. "
        "What only moves or casts numbers is left out."
    )
    columns = (
        Column("op", "text", lambda r: r.op, short),
        _PHASE,
        Column("autocast", "text", lambda r: r.autocast, optional=True),
        Column("no kernel for", "dtypes", lambda r: r.no_kernel, optional=True),
        Column("float32", "number", lambda r: r.f32, optional=True),
        Column("bfloat16", "number", lambda r: r.bf16, optional=True),
        Column("float16", "number", lambda r: r.f16, optional=True),
        Column("float64", "number", lambda r: r.f64, optional=True),
        Column("others", "number", lambda r: r.other - r.f64, optional=True),
        Column("FLOP", "flop", lambda r: r.flops, optional=True),
    )
    return table("operators", "Operators by dtype", about, (-1, 1), census.operators(recording), columns)


def _casts(recording: Recording, rows: Sequence[listings.OpRow], lines: Lines) -> dict[str, Any]:
    own, library = lines.columns()
    about = (
        "Every cast of a floating tensor. Round trip: the value is cast back, and nothing was computed in between. "
        "Bytes: of the first call's result."
    )
    columns = (
        Column("from", "dtypes", lambda c: c.source),
        Column("to", "dtypes", lambda c: c.to),
        own,
        _MODULE,
        Column("times", "number", lambda c: c.count),
        Column("bytes of one", "bytes", lambda c: c.bytes // max(1, c.count), optional=True),
        Column("round trip", "flag", lambda c: int(c.round_trip)),
        _OP,
        _PHASE,
        Column("by", "text", lambda c: c.change),
        library,
    )
    return table("casts", "Casts", about, (4, -1), listings.casts(recording, tuple(rows)), columns)


def _gradients(recording: Recording) -> dict[str, Any]:
    """The gradients that the optimizer's steps got; the columns of values only where values were measured."""
    about = (
        "Each parameter that an optimizer holds: its gradient's dtype and, "
        "where values were measured, what the steps did to it."
    )
    columns = [
        Column("parameter", "text", lambda r: r.name, short),
        Column("dtype", "dtypes", lambda r: r.dtype),
        Column("gradient", "dtypes", lambda r: r.gradient_dtype),
        Column("optimizer", "text", lambda r: r.optimizer),
        Column("steps", "number", lambda r: r.steps),
        Column("without", "number", lambda r: r.absent, optional=True),
    ]
    if any(r.reached or r.zero for r in recording.updates):
        columns += [
            Column("largest gradient", "figure", lambda r: r.gradient_peak, _figure),
            Column("steps of zeros", "figure", lambda r: r.zero, _figure),
            Column("% moved", "figure", lambda r: r.moved * 100 // r.reached if r.reached else 0, _figure),
            Column("mean change", "figure", lambda r: r.change, _figure),
            Column("mean weight", "figure", lambda r: r.magnitude, _figure),
        ]
    return table("gradients", "Gradients", about, (-1, 1), recording.updates, columns)


def _values(recording: Recording, lines: Lines) -> dict[str, Any]:
    phases = listings.phases(recording.ops)
    about = (
        "Ops whose results were infinite or NaN, or that turned small numbers into zero. "
        "Made: the operands were still finite."
    )
    columns = (
        Column("op", "text", lambda row: row[1].op),
        Column("phase", "text", lambda row: phases[row[0].op]),
        Column("out", "dtypes", lambda row: joined(row[1].outputs)),
        Column("module", "text", lambda row: row[1].module, short),
        lines.columns(lambda row: listings.place(recording, row[1].place))[0],
        Column("made infinite or NaN", "number", lambda row: row[0].made),
        Column("held", "number", lambda row: row[0].bad),
        Column("flushed to zero", "number", lambda row: row[0].flushed),
        Column("peak", "figure", lambda row: row[0].peak, _figure),
    )
    return table("values", "Values", about, (5, -1), listings.values(recording), columns)


def _compiled(recording: Recording, lines: Lines) -> dict[str, Any]:
    about = (
        "What compiled code makes of each call: the dtype that your line says, that of the graph, that in which "
        "its kernel hands it on, in which it is saved for the backward pass, and in which it is written to memory."
    )
    columns = (
        Column("compiled function", "text", lambda r: r.region),
        _OP,
        _PHASE,
        _MODULE,
        Column("your line", "text", lambda r: (lines.file(r.file), r.line), _line),
        Column("says", "dtypes", lambda r: r.says),
        Column("computes", "dtypes", lambda r: r.computes),
        Column("in the kernel", "dtypes", lambda r: r.kernel),
        Column("saved", "dtypes", lambda r: r.saved, optional=True),
        Column("written", "dtypes", lambda r: r.memory),
    )
    return table("compiled", "Compiled code", about, (-1, 1), listings.compiled(recording), columns)
