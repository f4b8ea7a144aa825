"""The lines of a program whose calls ran under autocast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from .. import graph
from ..records import Frame, Op, Recording

_PHASES = ("forward", "other")
"""Those in which a line's calls run when the line does."""
_Line = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Region:
    """Neighbouring lines of one function; ``autocast`` is device and dtype, as in ``cpu:bfloat16``."""

    autocast: str
    file: str
    function: str
    first: int
    last: int


def regions(recording: Recording) -> tuple[Region, ...]:
    """The regions, in the order of files and lines.

    A line is in a region if all that it called ran under the same autocast. Of the lines on a call's stack, the
    outermost such one counts: what it calls is inside, too.
    """
    ran: dict[_Line, set[str]] = defaultdict(set)
    ops = [op for op in recording.ops if op.inputs]  # a factory has no operands whose device says which autocast is on
    for op in ops:
        for frame in _user_frames(recording, op):
            ran[_line(frame)].add(op.autocast)
    inside: dict[_Line, str] = {}
    for op in ops:
        outermost = next((_line(f) for f in _user_frames(recording, op) if ran[_line(f)] == {op.autocast}), None)
        if op.autocast and outermost is not None:
            inside[outermost] = op.autocast
    return tuple(_joined(sorted(ran), inside))


def _user_frames(recording: Recording, op: Op) -> Iterator[Frame]:
    """The user's lines that an op was called from, outermost first."""
    if op.phase in _PHASES:
        yield from (f for f in reversed(graph.place_of(recording, op.place).stack) if f.user)


def _line(frame: Frame) -> _Line:
    return frame.file, frame.function, frame.line


def _joined(lines: list[_Line], inside: dict[_Line, str]) -> Iterator[Region]:
    """Lines of one function with no other line that ran between them are one region."""
    open_: Region | None = None
    for line in lines:
        file, function, number = line
        autocast = inside.get(line, "")
        if open_ is not None and (open_.autocast, open_.file, open_.function) == (autocast, file, function):
            open_ = Region(autocast, file, function, open_.first, number)
            continue
        if open_ is not None:
            yield open_
        open_ = Region(autocast, file, function, number, number) if autocast else None
    if open_ is not None:
        yield open_
