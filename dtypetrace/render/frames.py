"""The trace as pandas frames, for questions that no report answers. :func:`frame` documents their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from .. import graph
from ..records import PHASES, Place, ReceiptRow, Recording
from ..tables.dtypes import bytes_of
from . import listings


def frame(recording: Recording, of: str = "ops") -> Any:
    """One of the frames, a ``pandas.DataFrame``. Raises ValueError for another name.

    ``ops``: one row for each distinct op, indexed by its number in the recording, in the order of their first call:
    phase, module, op, aten, inputs (dtypes, joined by ", "), output (the first output's dtype), change (``cast``,
    ``autocast``, ``write``, ``promotion`` or empty, see ``render.listings.OpRow``), autocast (``cpu:bfloat16`` or
    empty), count (calls), file, line, function (innermost), user_file, user_line (the innermost frame of your own
    code).

    ``casts``: from_dtype, to_dtype, change, phase, module, op, round_trip, count, bytes (of all results, by the
    shapes of the first call), file, line, user_file, user_line.

    ``parameters``, indexed by name: module, dtype, size (numbers), bytes, origin (kind), file, line (where the dtype
    was decided).

    ``gradients``, indexed by name: the gradients that the optimizer's steps got and what the steps did, one row for
    each parameter:
    module, dtype, gradient_dtype (empty: it had none), differs, optimizer, steps, absent and zero (steps without a
    gradient, or with one that is all zeros), broken (steps whose gradient held an infinity or NaN), peak (the
    gradient's greatest magnitude), subnormal (share of the gradient below float16's normal range), moved (share of
    the numbers with a gradient that changed), magnitude (mean of the weights), change (mean of a step),
    learning_rate. Values need ``precision="values"``.

    Phase is an ordered category, so sorting puts forward before backward; modules, ops and dtypes are plain categories.
    """
    if of not in _FRAMES:
        raise ValueError(f"there is no frame of {of!r}; there are {', '.join(_FRAMES)}")
    import pandas as pd

    rows_of, index, columns = _FRAMES[of]
    rows = rows_of(recording)
    made = pd.DataFrame({name: _typed([get(row) for row in rows], kind) for name, (kind, get) in columns.items()})
    if index:
        kind = "int64" if index == "number" else "str"
        made.index = pd.Index([getattr(row, index) for row in rows], name=index, dtype=kind)
    return made


def receipt(rows: Sequence[ReceiptRow]) -> Any:
    """The frame of a receipt; ``view.Receipt.to_dataframe`` lists its columns."""
    import pandas as pd

    def place(row: ReceiptRow) -> Place:
        return row.cause.place if row.cause is not None else graph.NOWHERE

    columns: dict[str, _Column] = {
        **_own("str", "part what dtype"), **_own("integer", "count bytes"), **_own("float", "share"),
        **_own("str", "asked by"), **_own("bool", "differs"), **_line(place),
    }  # fmt: skip
    return pd.DataFrame({name: _typed([get(row) for row in rows], kind) for name, (kind, get) in columns.items()})


_Column = tuple[str, Callable[[Any], Any]]
"""A column's kind, and how it is read from a row."""


def _typed(entries: list[Any], kind: str) -> Any:
    """A column of its kind, also where it is empty."""
    import pandas as pd

    if kind == "phase":
        return pd.Categorical(entries, PHASES, ordered=True)
    if kind != "integer":
        return pd.Series(entries, dtype=object).astype(kind)
    try:
        return pd.Series(entries, dtype=object).astype("int64")
    except OverflowError:  # Python's own type where a number does not fit 64 bits
        return pd.Series(entries, dtype=object)


def _own(kind: str, names: str) -> dict[str, _Column]:
    """Columns that are attributes of the row."""
    return {name: (kind, attrgetter(name)) for name in names.split()}


def _where(place: Callable[[Any], Place], *, function: bool = False) -> dict[str, _Column]:
    user: dict[str, _Column] = {
        "user_file": ("str", lambda row: listings.user_line(place(row))[0]),
        "user_line": ("integer", lambda row: listings.user_line(place(row))[1]),
    }
    called: dict[str, _Column] = {"function": ("str", lambda row: place(row).function)} if function else {}
    return {**_line(place), **called, **user}


def _line(place: Callable[[Any], Place]) -> dict[str, _Column]:
    return {"file": ("str", lambda row: place(row).file), "line": ("integer", lambda row: place(row).line)}


_FRAMES: dict[str, tuple[Callable[[Recording], Sequence[Any]], str, dict[str, _Column]]] = {
    "ops": (
        lambda recording: listings.ops(recording),
        "number",
        {
            **_own("phase", "phase"),
            **_own("category", "module op aten"),
            "inputs": ("category", lambda r: ", ".join(r.inputs)),
            "output": ("category", lambda r: r.outputs[0] if r.outputs else ""),
            **_own("category", "change autocast"),
            **_own("integer", "count"),
            **_where(attrgetter("place"), function=True),
        },
    ),
    "casts": (
        lambda recording: listings.casts(recording),
        "",
        {
            "from_dtype": ("category", lambda r: r.source),
            "to_dtype": ("category", lambda r: r.to),
            **_own("category", "change"),
            **_own("phase", "phase"),
            **_own("category", "module op"),
            **_own("bool", "round_trip"),
            **_own("integer", "count bytes"),
            **_where(attrgetter("place")),
        },
    ),
    "parameters": (
        lambda recording: listings.parameters(recording),
        "name",
        {
            **_own("category", "module dtype"),
            **_own("integer", "size"),
            "bytes": ("integer", lambda r: r.size * bytes_of(r.dtype)),
            **_own("category", "origin"),
            **_line(attrgetter("place")),
        },
    ),
    "gradients": (
        lambda recording: recording.updates,
        "name",
        {
            "module": ("category", lambda r: r.name.rpartition(".")[0]),
            **_own("category", "dtype gradient_dtype"),
            "differs": ("bool", lambda r: bool(r.gradient_dtype) and r.gradient_dtype != r.dtype),
            **_own("category", "optimizer"),
            **_own("integer", "steps absent zero"),
            "broken": ("integer", lambda r: r.broken_gradient),
            "peak": ("float64", lambda r: r.gradient_peak),
            **_own("float64", "subnormal"),
            "moved": ("float64", listings.moved),
            **_own("float64", "magnitude change"),
            "learning_rate": ("float64", lambda r: r.lr),
        },
    ),
}
"""Of each frame the rows, the attribute that is its index (empty: their numbers), and the columns."""
