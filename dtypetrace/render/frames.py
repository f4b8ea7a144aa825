"""The trace as pandas frames, for questions that no report answers. :func:`frame` documents their columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..records import PHASES, SEVERITIES, Finding, Place, Recording
from ..tables.dtypes import bytes_of
from . import listings


def frame(recording: Recording, findings: Sequence[Finding], of: str = "ops") -> Any:
    """One of the frames, a ``pandas.DataFrame``. Raises ValueError for another name.

    ``ops``: one row for each distinct op, indexed by its number in the recording, in the order of their first call:
    phase, module, op, aten, inputs (dtypes, joined by ", "), output (the first output's dtype), change (``cast``,
    ``autocast``, ``write``, ``promotion`` or empty, see ``render.listings.OpRow``), autocast (``cpu:bfloat16`` or
    empty), count (calls), file, line, function (innermost), user_file, user_line (the innermost frame of your own
    code).

    ``findings``: one row each, the worst first: code, kind, severity, title, phase, module, op, count, culprit (name),
    culprit_dtype, born (the origin's kind), born_file, born_line, file, line, user_file, user_line, fix (in words).

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
    learning_rate. Values need ``numerics=True``.

    ``backward``: what each module's backward ops made: module, dtype, parameters (dtypes of its own), ops, count.

    ``modules``, indexed by name: calls (how often the program called its forward), parameters (numbers of its own),
    dtypes (of these), ops (calls of ops in it, not in the modules inside).

    Phase and severity are ordered categories, so sorting puts forward before backward and note before error; modules,
    ops and dtypes are plain categories.
    """
    made = _FRAMES.get(of)
    if made is None:
        raise ValueError(f"there is no frame of {of!r}; there are {', '.join(_FRAMES)}")
    return made(recording, findings)


def _where(places: Sequence[Place], *, function: bool = False) -> dict[str, list[Any]]:
    user = [listings.user_line(p) for p in places]
    columns: dict[str, list[Any]] = {"file": [p.file for p in places], "line": [p.line for p in places]}
    if function:
        columns["function"] = [p.function for p in places]
    return {**columns, "user_file": [file for file, _ in user], "user_line": [line for _, line in user]}


def _frame(columns: dict[str, list[Any]], index: Any = None) -> Any:
    """The frame of some columns; those with few values become categories. Empty frames keep their types."""
    import pandas as pd

    made = pd.DataFrame(columns, index=index)
    for name in made.columns:
        if name in ("phase", "severity"):
            made[name] = pd.Categorical(made[name], PHASES if name == "phase" else SEVERITIES, ordered=True)
        elif name in _NUMBERS:
            made[name] = _integers(made[name])
        elif name in _SHARES and "op" not in made:
            made[name] = made[name].astype("float64")
        elif name in ("round_trip", "differs"):
            made[name] = made[name].astype(bool)
        elif name in _CATEGORIES:
            made[name] = made[name].astype("category")
        else:
            made[name] = made[name].astype("str")
    return made


def _integers(column: Any) -> Any:
    """A column of integers; Python's own type where a sum does not fit 64 bits."""
    try:
        return column.astype("int64")
    except OverflowError:
        return column.astype(object)


_CATEGORIES = frozenset(
    [
        "module",
        "op",
        "aten",
        "inputs",
        "output",
        "change",
        "autocast",
        "code",
        "kind",
        "born",
        "from_dtype",
        "to_dtype",
        "dtype",
        "origin",
        "culprit_dtype",
        "gradient_dtype",
        "optimizer",
    ]
)
_NUMBERS = frozenset(
    ["count", "calls", "line", "user_line", "born_line", "size", "bytes", "ops", "steps", "absent", "zero", "broken"]
)
_SHARES = frozenset(["peak", "subnormal", "moved", "magnitude", "change", "learning_rate"])


def _ops(recording: Recording, findings: Sequence[Finding]) -> Any:
    import pandas as pd

    rows = listings.ops(recording)
    plain = {name: [getattr(r, name) for r in rows] for name in ("phase", "module", "op", "aten")}
    dtypes = {
        "inputs": [", ".join(r.inputs) for r in rows],
        "output": [r.outputs[0] if r.outputs else "" for r in rows],
    }
    rest = {name: [getattr(r, name) for r in rows] for name in ("change", "autocast", "count")}
    places = _where([r.place for r in rows], function=True)
    return _frame(
        {**plain, **dtypes, **rest, **places}, pd.Index([r.number for r in rows], name="number", dtype="int64")
    )


def _findings(recording: Recording, findings: Sequence[Finding]) -> Any:
    plain: dict[str, list[Any]] = {
        name: [getattr(f, name) for f in findings]
        for name in ("code", "kind", "severity", "title", "phase", "module", "op", "count")
    }
    plain["phase"] = [phase or "other" for phase in plain["phase"]]
    culprits = [f.culprit for f in findings]
    born: dict[str, list[Any]] = {
        "culprit": [c.shown if c else "" for c in culprits],
        "culprit_dtype": [c.dtype if c else "" for c in culprits],
        "born": [c.origin.kind if c else "" for c in culprits],
        "born_file": [c.origin.file if c else "" for c in culprits],
        "born_line": [c.origin.line if c else 0 for c in culprits],
    }
    return _frame(
        {**plain, **born, **_where([f.site for f in findings]), "fix": [f.fix.words if f.fix else "" for f in findings]}
    )


def _casts(recording: Recording, findings: Sequence[Finding]) -> Any:
    rows = listings.casts(recording)
    ends: dict[str, list[Any]] = {"from_dtype": [r.source for r in rows], "to_dtype": [r.to for r in rows]}
    rest = {
        name: [getattr(r, name) for r in rows]
        for name in ("change", "phase", "module", "op", "round_trip", "count", "bytes")
    }
    return _frame({**ends, **rest, **_where([r.place for r in rows])})


def _parameters(recording: Recording, findings: Sequence[Finding]) -> Any:
    import pandas as pd

    rows = listings.parameters(recording)
    columns: dict[str, list[Any]] = {
        "module": [r.module for r in rows],
        "dtype": [r.dtype for r in rows],
        "size": [r.size for r in rows],
        "bytes": [r.size * bytes_of(r.dtype) for r in rows],
        "origin": [r.origin for r in rows],
        "file": [r.place.file for r in rows],
        "line": [r.place.line for r in rows],
    }
    return _frame(columns, pd.Index([r.name for r in rows], name="name", dtype="str"))


def _gradients(recording: Recording, findings: Sequence[Finding]) -> Any:
    import pandas as pd

    rows = recording.updates
    columns: dict[str, list[Any]] = {
        "module": [r.name.rpartition(".")[0] for r in rows],
        "dtype": [r.dtype for r in rows],
        "gradient_dtype": [r.gradient_dtype for r in rows],
        "differs": [bool(r.gradient_dtype) and r.gradient_dtype != r.dtype for r in rows],
        "broken": [r.broken_gradient for r in rows],
        "peak": [r.gradient_peak for r in rows],
        "moved": [listings.moved(r) for r in rows],
        "learning_rate": [r.lr for r in rows],
        **{
            name: [getattr(r, name) for r in rows]
            for name in ("optimizer", "steps", "absent", "zero", "subnormal", "magnitude", "change")
        },
    }
    order = (
        "module dtype gradient_dtype differs optimizer steps absent zero broken peak subnormal moved magnitude change "
        "learning_rate"
    )
    return _frame(
        {name: columns[name] for name in order.split()}, pd.Index([r.name for r in rows], name="name", dtype="str")
    )


def _backward(recording: Recording, findings: Sequence[Finding]) -> Any:
    rows = listings.backward(recording)
    return _frame(
        {name: [getattr(r, name) for r in rows] for name in ("module", "dtype", "parameters", "ops", "count")}
    )


def _modules(recording: Recording, findings: Sequence[Finding]) -> Any:
    import pandas as pd

    calls, own, ran = listings.module_calls(recording), listings.parameters(recording), Counter[str]()
    for op in recording.ops:
        ran[op.module] += op.count
    numbers, dtypes = Counter[str](), defaultdict[str, set[str]](set)
    for row in own:
        numbers[row.module] += row.size
        dtypes[row.module].add(row.dtype)
    columns: dict[str, list[Any]] = {
        "calls": list(calls.values()),
        "parameters": [numbers[name] for name in calls],
        "dtypes": [", ".join(sorted(dtypes[name])) for name in calls],
        "ops": [ran[name] for name in calls],
    }
    return _frame(columns, pd.Index(list(calls), name="name", dtype="str"))


_FRAMES: dict[str, Callable[[Recording, Sequence[Finding]], Any]] = {
    "ops": _ops,
    "findings": _findings,
    "casts": _casts,
    "parameters": _parameters,
    "gradients": _gradients,
    "backward": _backward,
    "modules": _modules,
}
