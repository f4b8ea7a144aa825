"""A comparison of two runs, as console text: the first difference first, with both births."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from .. import graph
from ..compare.differences import Apart, Comparison, Compiled, DtypeDifference, Replaced, Side, UnmatchedOp
from ..records import Place
from ..tables.dtypes import DTYPES
from ..tables.english import some
from ..terminal import seen
from . import contracts, wording

Names = tuple[str, str]
"""What the two runs are called: their files."""
_MOST = 20
"""Differences shown; the first one leads to the others."""
_MOST_NAMED = 4
_MOST_OPS = 12


def text(comparison: Comparison, names: Names) -> str:
    """The comparison for the console."""
    lines = [f"a: {names[0]}", f"b: {names[1]}"]
    lines += [f"{name}: a {a}, b {b}" for name, a, b in comparison.settings]
    for number, difference in enumerate(comparison.differences[:_MOST], 1):
        lines += ["", *block(number, difference)]
    if len(comparison.differences) > _MOST:
        lines += ["", f"{len(comparison.differences) - _MOST} more differences"]
    lines += ["", *rest(comparison)]
    return "\n".join(seen(line) for line in lines)


def block(number: int, difference: DtypeDifference | Replaced) -> list[str]:
    return _change(number, difference) if isinstance(difference, DtypeDifference) else _replaced(number, difference)


def rest(comparison: Comparison) -> list[str]:
    """The lines below the differences: what compiled code does otherwise, parameters and findings of one run only, and
    the summary."""
    lines = []
    lines += [_compiled(c) for c in comparison.compiled[:_MOST]]
    if comparison.facts:
        lines += ["what differs in the receipt, - in a, + in b:", *contracts.lines(comparison.facts[:_MOST]), ""]
    for label, findings in zip("ab", comparison.findings):
        lines += [f"only in {label}: {f.severity}[{f.code}]: {f.title}{_at(f.site)}" for f in findings]
    for label, apart in zip("ab", comparison.apart):
        lines += [_apart(label, apart)] if apart else []
    return [*lines, summary(comparison)]


def _compiled(change: Compiled) -> str:
    where = f" in {change.module}" if change.module else ""
    told = "; ".join(f"{what} {a} in a, {b} in b" for what, a, b in change.changed)
    return f"compiled {change.op}{where} ({change.phase})  {_places(change.places)}: {told}"


def _change(number: int, change: DtypeDifference) -> list[str]:
    a, b = (side.dtype for side in change.sides)
    first = change.first
    head = f"{number}. {_what(change)}: {a} in a, {b} in b"
    here = first.places if first.op else (graph.NOWHERE, graph.NOWHERE)
    lines = [head] + [f"   {label}: {_birth(side, at)}" for label, side, at in zip("ab", change.sides, here)]
    if first.op:
        module = f" in {first.module}" if first.module else ""
        phase = f" ({first.phase})" if first.phase not in ("", "other") else ""
        lines.append(f"   first at {first.op}{module}{phase}  {_places(first.places)}")
    if change.ops > 1:
        lines.append(f"   it concerns {change.ops} ops{f' in {_some(change.modules)}' if change.modules else ''}")
    return lines


def _what(change: DtypeDifference) -> str:
    if change.parameters:
        return _some(change.parameters)
    if change.sides[0].origin.kind == "op":
        return f"the result of {change.first.op}" + (f" in {change.first.module}" if change.first.module else "")
    return f"an operand of {change.first.op}" + (f" in {change.first.module}" if change.first.module else "")


def _birth(side: Side, here: Place) -> str:
    """Where a dtype was born. ``here``: the call that shows it first."""
    origin = side.origin
    if origin.kind == "op":
        return f"{origin.op} gives {side.dtype}{_at(origin.place)}"
    if not origin.place.stack:
        return f"{side.dtype} existed before tracing started"
    if origin.kind == "autocast" and origin.place == here:
        return f"{side.dtype} is born{_at(origin.place)}: autocast casts the operands of {origin.op}()"
    return f"{side.dtype} is born{_at(origin.place)}: {wording.decided_by(origin)}"


def _at(place: Place) -> str:
    return f" at {wording.at(place)}" if place.stack else ""


def _places(places: tuple[Place, Place]) -> str:
    a, b = map(wording.at, places)
    return a if a == b else f"a {a or '?'}, b {b or '?'}"


def _replaced(number: int, replaced: Replaced) -> list[str]:
    inside = any(replaced.modules) or replaced.phase in ("forward", "recompute")
    where = _some(replaced.modules) if inside else "outside of modules"
    phase = f" ({replaced.phase})" if replaced.phase not in ("", "other") else ""
    lines = [f"{number}. {where}{phase}: other ops{f' inside {replaced.inside}' if replaced.inside else ''}"]
    for label, calls in zip("ab", replaced.calls):
        if not calls:
            lines.append(f"   {label}: nothing")
            continue
        names = [name for name, _ in groupby(map(_call, calls))]
        lines.append(f"   {label}: {some(names, _MOST_OPS)}  {wording.at(calls[0].place)}")
    return lines


def _call(call: UnmatchedOp) -> str:
    inputs, outputs = ("+".join(map(_short, dtypes)) for dtypes in (call.inputs, call.outputs))
    if not inputs or not outputs or inputs == outputs:
        return f"{call.op} {inputs or outputs}"
    return f"{call.op} {inputs}->{outputs}"


def _short(dtype: str) -> str:
    return (DTYPES[dtype].label if dtype in DTYPES else "") or dtype


def _some(names: Sequence[str]) -> str:
    return some([name or "the model" for name in names], _MOST_NAMED)


def _apart(label: str, apart: Sequence[Apart]) -> str:
    count = sum(a.ops for a in apart)
    places = list(dict.fromkeys(at for a in apart if (at := wording.at(a.place))))
    where = f" at {some(places, _MOST_NAMED)}" if places else ""
    return f"only in {label}: {count} op{'s' if count > 1 else ''}{where}; nothing else of the run reads what they make"


def summary(comparison: Comparison) -> str:
    """How many differences there are, in a line."""
    if comparison.same:
        return "dtypetrace diff: no dtype differs"
    count = len(comparison.differences) + len(comparison.compiled)
    return f"dtypetrace diff: {f'{count} differences, in the order of the ops' if count > 1 else '1 difference'}"
