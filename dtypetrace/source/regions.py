"""The ``with autocast`` statement around a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Place
from ..records.text import ProgramText
from .expressions import all_enclosing, enclosing_with
from .operands import located

AUTOCAST = "autocast"


def body(text: ProgramText, place: Place) -> Place | None:
    """The place from the first frame that is in the body of a ``with autocast`` statement outwards; None where none
    is."""
    levels = (n for n, frame in enumerate(place.stack) if enclosing_with(text, frame, AUTOCAST) is not None)
    level = next(levels, None)
    return Place(place.stack[level:]) if level is not None else None


def statement(text: ProgramText, place: Place) -> Place | None:
    """The place of the ``autocast(...)`` expression of that statement."""
    inside = body(text, place)
    if inside is None:
        return None
    frame = inside.stack[0]
    file, found = text.parsed(frame.file), enclosing_with(text, frame, AUTOCAST)
    return (
        Place((located(file, frame, found[1]), *inside.stack[1:])) if file is not None and found is not None else None
    )


def around(text: ProgramText, place: Place) -> Iterator[tuple[Place, ast.expr]]:
    """The ``autocast(...)`` expressions of all such statements around a place and its callers, the innermost first."""
    for level, frame in enumerate(place.stack):
        file = text.parsed(frame.file)
        if file is not None:
            for _, expression in all_enclosing(text, frame, AUTOCAST):
                yield Place((located(file, frame, expression), *place.stack[level + 1 :])), expression
