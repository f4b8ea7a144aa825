"""The tables of the HTML report as compact JSON: columns of indices into sorted lists of values, so 20,000 rows stay
small.

A table is ``{"id", "title", "about", "sort", "rows", "groups"}``. A group has ``columns`` (label and kind: text,
dtypes, number, bytes, flop, figure or flag), ``values`` (the distinct entries, a list for each column, in sorting
order) and ``at`` (for each row the entry's index); a group of one number column has its numbers in ``at`` and no
``values``. ``at`` holds differences, as neighbours often have the same entry. The first column of a group of texts is
front coded: ``[shared, rest, ...]``, how many characters it shares with the entry before."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ..parts import attempt
from ..records import Place, Recording
from . import census, listings, wording
from .svg import shortened

_LONGEST = 160
"""Characters of a name or path in a table: the middle of a longer one is left out."""
_MOST_DTYPES = 6
"""Dtypes of one call that a table names: an optimizer's op takes hundreds of tensors."""
_Entry = tuple[Any, ...]
"""One row of a group of columns."""


def tables(recording: Recording, rows: Sequence[listings.OpRow]) -> list[dict[str, Any]]:
    """Operators by dtype, cast ledger, gradients, values, backward by module, all ops; a table without rows is left
    out."""
    short = _Short()
    rows = [r if r.phase == shown else replace(r, phase=shown) for r, shown in zip(rows, listings.phases(rows))]
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "operators": lambda: _operators(recording),
        "casts": lambda: _casts(recording, rows, short),
        "gradients": lambda: _gradients(recording),
        "values": lambda: _values(recording, short),
        "backward": lambda: _backward(recording),
        "ops": lambda: _ops(rows, short),
    }
    made = [attempt(f"the table of {name}", make, {"rows": 0}) for name, make in makers.items()]
    return [t for t in made if t["rows"]]


class _Short:
    """The two columns of a table for a place, each computed once: the user's own line, and the library line below
    it."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._known: dict[int, tuple[tuple[str, int], tuple[str, int]]] = {}

    def __call__(self, place: Place) -> tuple[tuple[str, int], tuple[str, int]]:
        known = self._known.get(id(place))
        if known is None:
            user, inner = place.user_frame, place.stack[0] if place.stack else None
            below = (self._file(inner.file), inner.line) if inner is not None and inner is not user else ("", 0)
            known = self._known[id(place)] = (
                (self._file(user.file), user.line) if user is not None else ("", 0),
                below,
            )
        return known

    def _file(self, file: str) -> str:
        known = self._files.get(file)
        if known is None:
            known = self._files[file] = shortened(wording.relative(file).replace(os.sep, "/"), _LONGEST)
        return known


def _table(
    name: str, title: str, about: str, sort: tuple[int, int], groups: list[dict[str, Any]], rows: int
) -> dict[str, Any]:
    return {"id": name, "title": title, "about": about, "sort": list(sort), "rows": rows, "groups": groups}


def _group(
    columns: Sequence[tuple[str, str]], entries: Sequence[_Entry], written: Callable[[_Entry], Sequence[Any]] = tuple
) -> dict[str, Any]:
    """Rows as indices into their distinct entries. The entries are sorted in Python and then written as the page shows
    them."""
    distinct = sorted(set(entries))
    index = {e: n for n, e in enumerate(distinct)}
    values = [list(column) for column in zip(*map(written, distinct))]
    if values and columns[0][1] == "text":
        values[0] = _front_coded(values[0])
    return {"columns": columns, "values": values, "at": _differences([index[e] for e in entries])}


def _numbers(label: str, numbers: Sequence[int], kind: str = "number") -> dict[str, Any]:
    return {"columns": [(label, kind)], "at": _differences(numbers)}


def _differences(numbers: Sequence[int]) -> list[int]:
    return [n - before for n, before in zip(numbers, (0, *numbers))]


def _front_coded(texts: Sequence[str]) -> list[int | str]:
    coded: list[int | str] = []
    before = ""
    for text in texts:
        shared = len(os.path.commonprefix((before, text)))
        coded += (shared, text[shared:])
        before = text
    return coded


def _line(entry: _Entry) -> tuple[str]:
    file, line = entry
    return (f"{file}:{line}" if file else "",)


def _module(name: str) -> tuple[str]:
    return (shortened(name, _LONGEST),)


def _figure(number: float) -> float | None:
    """Three digits of a number; None for a number that JSON cannot hold."""
    return float(f"{number:.3g}") if math.isfinite(number) else None


def _joined(dtypes: Sequence[str]) -> str:
    """Dtypes in words, repeats counted: ``float16, 3 float32``."""
    runs = [(len(list(same)), dtype) for dtype, same in groupby(dtypes)]
    words = ", ".join(f"{n} {dtype}" if n > 1 else dtype for n, dtype in runs[:_MOST_DTYPES])
    return words + (", …" if len(runs) > _MOST_DTYPES else "")


def _ops(rows: Sequence[listings.OpRow], short: _Short) -> dict[str, Any]:
    entries: list[_Entry] = [(r.op, r.phase, _joined(r.inputs), _joined(r.outputs), r.change, r.autocast) for r in rows]
    kinds = [
        ("op", "text"),
        ("phase", "text"),
        ("in", "dtypes"),
        ("out", "dtypes"),
        ("change", "text"),
        ("autocast", "text"),
    ]
    if not any(r.autocast for r in rows):
        entries, kinds = [entry[:-1] for entry in entries], kinds[:-1]
    groups = [
        _group(kinds, entries),
        _group([("module", "text")], [_module(r.module) for r in rows]),
        _group([("your line", "text")], [short(r.place)[0] for r in rows], _line),
        _group([("library line", "text")], [short(r.place)[1] for r in rows], _line),
        _numbers("calls", [r.count for r in rows]),
    ]
    return _table(
        "ops",
        "All ops",
        "Each distinct op once (same line, module, phase and dtypes), in the order of the first call.",
        (-1, 1),
        groups,
        len(rows),
    )


def _operators(recording: Recording) -> dict[str, Any]:
    rows = census.operators(recording)
    kinds = [("op", "text"), ("phase", "text"), *([("autocast", "text")] if any(r.autocast for r in rows) else ())]
    kinds += [("no kernel for", "dtypes")] if any(r.no_kernel for r in rows) else []
    fields = {"op": "op", "phase": "phase", "autocast": "autocast", "no kernel for": "no_kernel"}
    groups = [
        _group(kinds, [tuple(shortened(getattr(r, fields[label]), _LONGEST) for label, _ in kinds) for r in rows])
    ]
    for name, label in (("f32", "float32"), ("bf16", "bfloat16"), ("f16", "float16"), ("other", "others")):
        if any(getattr(r, name) for r in rows):
            groups.append(_numbers(label, [getattr(r, name) for r in rows]))
    if any(r.flops for r in rows):
        groups.append(_numbers("FLOP", [r.flops for r in rows], "flop"))
    about = (
        "Calls of each operator that computes, by the dtype of its result, the costliest first. "
        "What only moves or casts numbers is left out."
    )
    return _table("operators", "Operators by dtype", about, (-1, 1), groups, len(rows))


def _casts(recording: Recording, rows: Sequence[listings.OpRow], short: _Short) -> dict[str, Any]:
    casts = listings.casts(recording, tuple(rows))
    groups = [
        _group([("from", "dtypes"), ("to", "dtypes"), ("by", "text")], [(c.source, c.to, c.change) for c in casts]),
        _group([("op", "text"), ("phase", "text")], [(c.op, c.phase) for c in casts]),
        _group([("module", "text")], [_module(c.module) for c in casts]),
        _group([("your line", "text")], [short(c.place)[0] for c in casts], _line),
        _group([("library line", "text")], [short(c.place)[1] for c in casts], _line),
        _group([("round trip", "flag")], [(int(c.round_trip),) for c in casts]),
        _numbers("times", [c.count for c in casts]),
        *([_numbers("bytes", [c.bytes for c in casts], "bytes")] if any(c.bytes for c in casts) else ()),
    ]
    about = "Every cast of a floating tensor. Round trip: the value is cast back, and nothing was computed in between."
    return _table("casts", "Casts", about, (9, -1), groups, len(casts))


def _gradients(recording: Recording) -> dict[str, Any]:
    """The gradients that the optimizer's steps got; the columns of values only where values were measured."""
    rows = recording.updates
    groups = [
        _group([("parameter", "text")], [_module(r.name) for r in rows]),
        _group(
            [("dtype", "dtypes"), ("gradient", "dtypes"), ("optimizer", "text")],
            [(r.dtype, r.gradient_dtype, r.optimizer) for r in rows],
        ),
        _numbers("steps", [r.steps for r in rows]),
        *([_numbers("without", [r.absent for r in rows])] if any(r.absent for r in rows) else ()),
    ]
    if any(r.reached or r.zero for r in rows):
        measured = [
            (r.gradient_peak, r.zero, r.moved * 100 // r.reached if r.reached else 0, r.change, r.magnitude)
            for r in rows
        ]
        columns = [
            ("largest gradient", "figure"),
            ("steps of zeros", "figure"),
            ("% moved", "figure"),
            ("mean change", "figure"),
            ("mean weight", "figure"),
        ]
        groups.append(_group(columns, measured, lambda entry: [_figure(n) for n in entry]))
    about = (
        "Each parameter that an optimizer holds: its gradient's dtype and, "
        "where values were measured, what the steps did to it."
    )
    return _table("gradients", "Gradients", about, (-1, 1), groups, len(rows))


def _values(recording: Recording, short: _Short) -> dict[str, Any]:
    rows, phases = listings.values(recording), listings.phases(recording.ops)
    groups = [
        _group(
            [("op", "text"), ("phase", "text"), ("out", "dtypes")],
            [(o.op, phases[v.op], _joined(o.outputs)) for v, o in rows],
        ),
        _group([("module", "text")], [_module(o.module) for _, o in rows]),
        _group([("your line", "text")], [short(listings.place(recording, o.place))[0] for _, o in rows], _line),
        _numbers("made infinite or NaN", [v.made for v, _ in rows]),
        _numbers("held", [v.bad for v, _ in rows]),
        _numbers("flushed to zero", [v.flushed for v, _ in rows]),
        _group([("peak", "figure")], [(v.peak,) for v, _ in rows], lambda entry: [_figure(entry[0])]),
    ]
    about = (
        "Ops whose results were infinite or NaN, or that turned small numbers into zero. "
        "Made: the operands were still finite."
    )
    return _table("values", "Values", about, (5, -1), groups, len(rows))


def _backward(recording: Recording) -> dict[str, Any]:
    rows = listings.backward(recording)
    groups = [
        _group([("module", "text")], [_module(r.module or "(outside any module)") for r in rows]),
        _group([("made in backward", "dtypes"), ("its parameters", "dtypes")], [(r.dtype, r.parameters) for r in rows]),
        _numbers("calls", [r.count for r in rows]),
    ]
    return _table(
        "backward",
        "Backward",
        "The floating dtypes that the backward ops of each module made, and those of its own parameters.",
        (-1, 1),
        groups,
        len(rows),
    )
