"""Saved traces: a recording with its findings as one JSON file, read back without torch.

The format is versioned and compact: every record is a list of its fields in order, places and
frames are kept once and named by number. Opening a file runs none of its content; whatever is wrong
with it is told in one line (:class:`TraceFileError`).
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from . import report
from .records import Finding, Frame, Place, Recording

FORMAT = 1
_AROUND = 2


class TraceFileError(ValueError):
    """A file that is no saved trace, or one that this version cannot read."""


def save(path: str | os.PathLike, recording: Recording, findings: Sequence[Finding], *, source: bool = True) -> None:
    """Writes a trace, whole or not at all. ``source=False`` leaves the program's text out."""
    texts = _texts(recording, findings) if source else {}
    table = _Table()
    body = {
        "recording": table.pack(replace(recording, sources=texts)),
        "findings": [table.pack(f if source else _without_text(f)) for f in findings],
    }
    data = {"dtypetrace": "trace", "format": FORMAT, "frames": table.frames, "places": table.places, **body}
    report.write_atomically(path, json.dumps(data, separators=(",", ":")))


def load(path: str | os.PathLike) -> tuple[Recording, tuple[Finding, ...]]:
    """Reads a saved trace. Raises TraceFileError for what is none, OSError where the file cannot be read."""
    name = os.fspath(path)
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise TraceFileError(
            f"{name} is no saved trace, or only a part of one: {_short(error)}. Save it again with dtypetrace run --save"
        ) from None
    if not isinstance(data, dict) or data.get("dtypetrace") != "trace":
        raise TraceFileError(
            f"{name} is JSON, but no saved trace. Make one with dtypetrace run --save, or trace.save()"
        )
    if not isinstance(data.get("format"), int) or data["format"] > FORMAT:
        raise TraceFileError(
            f"{name} has format {data.get('format')!r}, this dtypetrace reads up to {FORMAT}. Install a newer dtypetrace"
        )
    try:
        reader = _Reader(data["frames"], data["places"])
        findings = tuple(reader.unpack(Finding, f) for f in data["findings"])
        return reader.unpack(Recording, data["recording"]), findings
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise TraceFileError(f"{name} is damaged: {_short(error)}. Save it again with dtypetrace run --save") from None


def _without_text(finding: Finding) -> Finding:
    """The finding less its edits, which quote the program."""
    return replace(finding, fix=replace(finding.fix, edits=()) if finding.fix else None)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _texts(recording: Recording, findings: Sequence[Finding]) -> dict[str, dict[str, str]]:
    """The lines around every place that the findings name, by file and line number."""
    texts: dict[str, dict[str, str]] = {}
    for place in _places(findings):
        for frame in place.stack:
            if frame.user or frame is place.stack[0]:
                for number in range(max(1, frame.line - _AROUND), (frame.end_line or frame.line) + _AROUND + 1):
                    line = recording.line(frame.file, number)
                    if line:
                        texts.setdefault(frame.file, {})[str(number)] = line
    return texts


def _places(value: Any) -> typing.Iterator[Place]:
    if isinstance(value, Place):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _places(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _places(item)


def packed(value: Any) -> Any:
    """A dataclass of plain values, without places, as JSON-able data."""
    return _Table().pack(value)


def unpacked(kind: type, data: Any) -> Any:
    """The dataclass that was packed. Raises ValueError for what does not fit its fields."""
    return _Reader([], []).unpack(kind, data)


class _Table:
    """Packs values; frames and places are numbered as they are met."""

    def __init__(self) -> None:
        self.frames: list[list] = []
        self.places: list[list[int]] = []
        self._frames: dict[Frame, int] = {}
        self._places: dict[Place, int] = {}

    def pack(self, value: Any) -> Any:
        if isinstance(value, Place):
            if value not in self._places:
                stack = [self._frame(f) for f in value.stack]
                self._places[value] = len(self.places)
                self.places.append(stack)
            return self._places[value]
        if is_dataclass(value):
            return [self.pack(getattr(value, f.name)) for f in fields(value)]
        if isinstance(value, Mapping):
            return {str(k): self.pack(v) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            return [self.pack(v) for v in value]
        return value

    def _frame(self, frame: Frame) -> int:
        if frame not in self._frames:
            self._frames[frame] = len(self.frames)
            self.frames.append([getattr(frame, f.name) for f in fields(frame)])
        return self._frames[frame]


class _Reader:
    """Unpacks values by the types that records declare, and refuses what does not fit them."""

    def __init__(self, frames: list, places: list) -> None:
        self._frames = [self.unpack(Frame, f) for f in frames]
        self._places = [Place(tuple(self._frames[_index(i, self._frames)] for i in place)) for place in places]

    def unpack(self, kind: Any, data: Any) -> Any:
        if kind is Place:
            return self._places[_index(data, self._places)]
        if is_dataclass(kind):
            hints = _hints(kind)
            # an older version wrote fewer fields: the ones that came since have defaults
            if not isinstance(data, list) or not _required(kind) <= len(data) <= len(hints):
                raise ValueError(f"a {kind.__name__} of {len(hints)} fields was expected")
            return kind(*(self.unpack(hint, item) for hint, item in zip(hints, data)))
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            if data is None and type(None) in args:
                return None
            return self.unpack(next(a for a in args if a is not type(None)), data)
        if origin is tuple:
            _expect(data, list)
            if len(args) == 2 and args[1] is Ellipsis:
                return tuple(self.unpack(args[0], item) for item in data)
            if len(data) != len(args):
                raise ValueError(f"{len(args)} values were expected")
            return tuple(self.unpack(a, item) for a, item in zip(args, data))
        if origin is not None:  # a mapping
            _expect(data, dict)
            return {key: self.unpack(args[1], item) for key, item in data.items()}
        if kind is not Any:
            _expect(data, kind)
        return data


@cache
def _hints(kind: type) -> tuple[Any, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(hints[f.name] for f in fields(kind))


@cache
def _required(kind: type) -> int:
    """How many fields a record must have: those without a default."""
    return sum(f.default is MISSING and f.default_factory is MISSING for f in fields(kind))


def _expect(data: Any, kind: type) -> None:
    if type(data) is not kind:
        raise ValueError(f"{kind.__name__} was expected, not {type(data).__name__}")


def _index(data: Any, table: list) -> int:
    _expect(data, int)
    if not 0 <= data < len(table):
        raise ValueError(f"number {data} is in no table")
    return data
