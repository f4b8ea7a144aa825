"""What the fields of a saved trace may hold, beyond their types.

A trace may come from a stranger, and views trust a recording: they follow its numbers from table to table, follow
chains of steps to their end, and use severities as keys. What is here makes sure that this works. A field's meaning
follows from its name, which is the same in every record, so a new field of a record needs a line here only if its name
is new.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from . import PHASES, SEVERITIES, Edit, Finding, Frame, Later, Precision, Recording, Region, Value

LARGEST = 2**63 - 1
"""The largest integer allowed: tables of numbers (pandas) hold no larger ones."""

TABLES = {
    "place": "places", "default": "places", "region": "places",
    "event": "events", "parents": "events", "gradient_event": "events",
    "producer": "ops", "of": "ops", "op": "ops", "call": "ops", "undone": "ops",
}  # fmt: skip
"""Fields that hold numbers of records (-1: none), each with the recording's table that they index."""
_ALWAYS = {(Value, "op"), (Precision, "op"), (Later, "op")}
"""Fields among them that are never -1."""

_CODE = re.compile(r"DT\d{3}")
_META: dict[str, Any] = {
    "torch": str, "python": str, "ops": int, "steps": int, "watched": str, "watched_steps": int, "all_steps": int,
    "script": str, "arguments": str, "started": str, "milliseconds": int,
}  # fmt: skip
"""The entries of a recording's ``meta`` that views read."""

_COUNTS = frozenset({"count", "module_calls", "step_ends"})
"""Fields whose numbers are never negative."""

Test = Callable[[Any, Mapping[str, int]], bool]
"""Whether a field may hold a value, given how many records each table has."""


def _check_recording(recording: Recording) -> None:
    """No event comes from a later one, operands are there, and views can read what the run was."""
    for number, event in enumerate(recording.events):
        if any(above >= number for above in (*event.parents, *(read.event for read in event.reads))):
            raise ValueError(f"event {number} comes from a later one")
    for later in recording.later:
        known = 0 <= later.op < len(recording.ops) and 0 <= later.index < len(recording.ops[later.op].inputs)
        if not known or later.producer < 0:
            raise ValueError(f"op {later.op} has no operand {later.index}")
    for name, wanted in _META.items():
        value: Any = recording.meta.get(name, wanted())
        if type(value) is not wanted or wanted is int and not 0 <= value <= LARGEST:
            raise ValueError(f"meta {name} cannot be {short(value)}")


def _check_region(region: Region) -> None:
    """A node takes earlier nodes of its graph, and belongs to a step of its region."""
    for graph in region.graphs:
        for number, node in enumerate(graph.nodes):
            inside = all(0 <= i < number for i in node.inputs) and -1 <= node.step < len(region.steps)
            if not inside or any(not 0 <= p < len(node.inputs) for p in node.unrounded):
                raise ValueError(f"node {number} of a compiled graph names nodes or steps that it cannot have")


def _check_edit(edit: Edit) -> None:
    """An edit's end is not before its start, and it spans as many lines as the text that it replaces."""
    if not (1, 1) <= edit.start <= edit.end or edit.end[0] - edit.start[0] > edit.before.count("\n"):
        raise ValueError(f"an edit cannot reach from {edit.start} to {edit.end}")


WHOLE: dict[Any, Callable[[Any], None]] = {Edit: _check_edit, Region: _check_region, Recording: _check_recording}
"""What is asked of a whole record; each raises ValueError with one line that says what is wrong."""


@cache
def tests(kind: Any) -> dict[str, Test]:
    """The fields of a kind of record that could hold a wrong value of the right type, each with its test."""
    hints = typing.get_type_hints(kind)
    found = {f.name: _test(kind, f.name, _leaves(hints[f.name])) for f in fields(kind)}
    return {name: test for name, test in found.items() if test is not None}


def _test(kind: Any, name: str, leaves: set[Any]) -> Test | None:
    if int in leaves:
        if name in TABLES:
            table, first = TABLES[name], 0 if (kind, name) in _ALWAYS else -1
            return lambda value, sizes: (
                first <= value < sizes[table]
                if type(value) is int
                else all(first <= n < sizes[table] for n in _numbers(value))
            )
        if name == "shape":
            return lambda value, sizes: not value or min(value) >= -1 and math.prod(value) <= LARGEST
        if name in _COUNTS or kind is Frame:
            return lambda value, sizes: value >= 0 if type(value) is int else all(n >= 0 for n in _numbers(value))
        return None
    if name == "phase":
        return lambda value, sizes: value in PHASES
    if kind is Finding and name in _WORDS:
        return _WORDS[name]
    return None


_WORDS: dict[str, Test] = {
    "severity": lambda value, sizes: value in SEVERITIES,
    "code": lambda value, sizes: _CODE.fullmatch(value) is not None,
}


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)


def _leaves(hint: Any) -> set[Any]:
    """The types that a type is made of: for ``tuple[Step, ...] | None``, these are Step, Ellipsis and None."""
    args = typing.get_args(hint)
    return set().union(*map(_leaves, args)) if args else {hint}


_LONGEST_QUOTED = 40
"""Characters of a wrong value that an error quotes."""


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTED else text[: _LONGEST_QUOTED - 3] + "..."
