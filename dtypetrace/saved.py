"""Saved traces: a recording with its findings as one JSON file, read back without torch.

The format is versioned and compact: every record is a list of its fields in order, places and
frames are stored once and named by number. Opening a file runs none of its content; any error in it is reported in one
line (:class:`TraceFileError`).
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from . import report
from .errors import TraceFileError
from .parts import collector_paused
from .records import Finding, Frame, Inserted, Place, Recording, Results, Sources, schema
from .terminal import seen

FORMAT = 3
_Kind = TypeVar("_Kind")


def save(path: str | os.PathLike[str], results: Results, *, source: bool = True) -> None:
    """Writes a trace, whole or not at all. ``source=False`` leaves the program's text out."""
    if not source:
        results = _without_text(results)
    table = _Table()
    body = {
        "recording": table.pack(results.recording),
        "findings": table.pack(results.findings),
        "fixes": table.pack(results.fixes),
        "diff": results.diff,
    }
    data = {
        "dtypetrace": "trace",
        "format": FORMAT,
        "fields": table.names,
        "frames": table.frames,
        "places": table.places,
        **body,
    }
    report.write_atomically(path, json.dumps(data, separators=(",", ":")))


def load(path: str | os.PathLike[str]) -> Results:
    """Reads a saved trace. Raises TraceFileError for a file that is not one, OSError where the file cannot be read."""
    name = seen(os.fsdecode(path))
    try:
        with collector_paused():
            data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise TraceFileError(
            f"{name} is no saved trace, or only a part of one: {_short(error)}. Give a file that dtypetrace run --save "
            "wrote"
        ) from None
    if not isinstance(data, dict) or data.get("dtypetrace") != "trace":
        raise TraceFileError(
            f"{name} is JSON, but no saved trace. Make one with dtypetrace run --save, or trace.save()"
        )
    _check_format(name, data.get("format"))
    try:
        with collector_paused():
            reader = _Reader(data["fields"], data["frames"], data["places"])
            return reader.results(data)
    except (LookupError, TypeError, ArithmeticError, ValueError, RecursionError) as error:
        raise TraceFileError(f"{name} is damaged: {_short(error)}. Save it again with dtypetrace run --save") from None


def _check_format(name: str, found: Any) -> None:
    if not isinstance(found, int) or found > FORMAT:
        raise TraceFileError(
            f"{name} has format {_short(found)}, this dtypetrace reads format {FORMAT}. Install a newer dtypetrace"
        )
    if found < FORMAT:
        raise TraceFileError(
            f"{name} has format {found}, this dtypetrace reads format {FORMAT}. Run the program again "
            f"with dtypetrace run --save"
        )


def _without_text(results: Results) -> Results:
    """The results without what quotes the program: its lines, the edits, the patch."""
    findings = tuple(replace(f, fix=replace(f.fix, edits=(), by_hand=()) if f.fix else None) for f in results.findings)
    return Results(replace(results.recording, sources=Sources()), findings, results.fixes)


_LONGEST_REASON = 120
"""Characters of an error's reason, so that it fits a line or two."""


def _short(error: object) -> str:
    return seen(" ".join(str(error).split())[:_LONGEST_REASON]) or type(error).__name__


class _Table:
    """Packs values; frames and places are numbered in the order of first use."""

    def __init__(self) -> None:
        self.frames: list[list[Any]] = []
        self.places: list[list[int]] = []
        self.names: dict[str, tuple[str, ...]] = {}
        """The fields of each kind of record, in the order in which their values are written."""
        self._frames: dict[Frame, int] = {}
        self._places: dict[Place, int] = {}

    def pack(self, value: Any) -> Any:
        if isinstance(value, Place):
            if value not in self._places:
                stack = [self._frame(f) for f in value.stack]
                self._places[value] = len(self.places)
                self.places.append(stack)
            return self._places[value]
        if is_dataclass(value) and not isinstance(value, type):
            names = self.names[type(value).__name__] = _names(type(value))
            return [self.pack(getattr(value, name)) for name in names]
        if isinstance(value, Mapping):
            return {str(k): self.pack(v) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            return [self.pack(v) for v in value]
        return value

    def _frame(self, frame: Frame) -> int:
        if frame not in self._frames:
            names = self.names[Frame.__name__] = _names(Frame)
            self._frames[frame] = len(self.frames)
            self.frames.append([getattr(frame, name) for name in names])
        return self._frames[frame]


_Make = Callable[[Any], Any]
"""Makes a value of one type from JSON's data."""


class _Reader:
    """Unpacks values by the types that records declare, and refuses what does not fit them.

    ``names`` are the fields that the file has for each kind of record. A field that was added later gets its default; a
    field that no longer exists is ignored. What a type asks for is found once: a trace has a hundred thousand values.
    """

    def __init__(self, names: Any, frames: list[Any], places: list[Any]) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._makes: dict[Any, _Make] = {}
        self._sizes: dict[str, int] = {}
        """How many records each table of the recording has."""
        own = _scalar(dict, names).items()
        self._names.update({kind: self.unpack(tuple[str, ...], fields) for kind, fields in own})
        self._makes.clear()
        self._frames = [self.unpack(Frame, f) for f in frames]
        self._places = [Place(tuple(self._frames[_index(i, self._frames)] for i in place)) for place in places]

    def results(self, data: Mapping[str, Any]) -> Results:
        written = dict(zip(self._names.get(Recording.__name__, ()), data["recording"]))
        self._sizes = {table: len(written.get(table, ())) for table in schema.TABLES.values()}
        recording = self.unpack(Recording, data["recording"])
        findings = self.unpack(tuple[Finding, ...], data["findings"])
        fixes, diff = self.unpack(tuple[Inserted, ...], data["fixes"]), self.unpack(str, data["diff"])
        return Results(recording, tuple(replace(f, sources=recording.sources) for f in findings), fixes, diff)

    def unpack(self, kind: Any, data: Any) -> Any:
        return self._make(kind)(data)

    def _make(self, kind: Any) -> _Make:
        made = self._makes.get(kind)
        if made is None:
            # a record may hold records of its own kind, so its name is known before its parts are
            self._makes[kind] = lambda data: self._makes[kind](data)
            made = self._makes[kind] = self._find(kind)
        return made

    def _find(self, kind: Any) -> _Make:
        if kind is Place:
            return lambda data: self._places[_index(data, self._places)]
        if is_dataclass(kind):
            return self._record(kind)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            inner, none = self._make(next(a for a in args if a is not type(None))), type(None) in args
            return lambda data: None if data is None and none else inner(data)
        if origin is tuple:
            return self._tuple(args)
        if origin is not None:  # a mapping
            value = self._make(args[1])
            return lambda data: {key: value(item) for key, item in _scalar(dict, data).items()}
        return (lambda data: data) if kind is Any else _text if kind is str else partial(_scalar, kind)

    def _record(self, kind: Any) -> _Make:
        own, hints = _names(kind), _hints(kind)
        names = self._names.get(kind.__name__, own)
        makes = [self._make(hints[name]) if name in hints else lambda data: None for name in names]
        tests = [(names.index(name), test) for name, test in schema.tests(kind).items() if name in names]
        whole = schema.WHOLE.get(kind, lambda made: None)

        def make(data: Any) -> Any:
            if type(data) is not list or len(data) != len(makes):
                raise ValueError(f"a {kind.__name__} of {len(makes)} fields was expected")
            values = [make(item) for make, item in zip(makes, data)]
            for at, test in tests:
                if not test(values[at], self._sizes):
                    raise ValueError(f"{kind.__name__}.{names[at]} cannot be {schema.short(values[at])}")
            made = kind(*values) if names == own else kind(**{n: v for n, v in zip(names, values) if n in hints})
            whole(made)
            return made

        return make

    def _tuple(self, args: tuple[Any, ...]) -> _Make:
        if len(args) == 2 and args[1] is Ellipsis:
            item = self._make(args[0])
            return lambda data: tuple([item(one) for one in _scalar(list, data)])
        items = [self._make(a) for a in args]

        def each(data: Any) -> tuple[Any, ...]:
            if len(_scalar(list, data)) != len(items):
                raise ValueError(f"{len(items)} values were expected")
            return tuple([make(one) for make, one in zip(items, data)])

        return each


def _text(data: Any) -> Any:
    return data if type(data) is str else _scalar(str, data)


def _scalar(kind: Any, data: Any) -> Any:
    if type(data) is not kind:
        if kind is not float or type(data) is not int:
            raise ValueError(f"{kind.__name__} was expected, not {type(data).__name__}")
        return float(data)
    if kind is int and not -schema.LARGEST <= data <= schema.LARGEST:
        raise ValueError("an integer has more than 64 bits")
    return data


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a record that are saved, in order."""
    return tuple(f.name for f in fields(kind) if f.metadata.get("saved", True))


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The type of each saved field, in order."""
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in _names(kind)}


def _index(data: Any, table: list[Any]) -> int:
    number: int = _scalar(int, data)
    if not 0 <= number < len(table):
        raise ValueError(f"number {number} is in no table")
    return number
