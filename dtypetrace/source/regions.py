"""The ``with autocast`` statement, or the decorator, around a place."""

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
    """The place of the innermost ``autocast(...)`` expression around a place: of a ``with`` statement, or of the
    decorator of a function that was running there."""
    return next((found for found, _ in around(text, place)), None)


def around(text: ProgramText, place: Place) -> Iterator[tuple[Place, ast.expr]]:
    """The ``autocast(...)`` expressions of all such statements and decorators around a place and its callers, the
    innermost first."""
    for level, frame in enumerate(place.stack):
        file = text.parsed(frame.file)
        if file is not None:
            for _, expression in all_enclosing(text, frame, AUTOCAST):
                yield Place((located(file, frame, expression), *place.stack[level + 1 :])), expression
