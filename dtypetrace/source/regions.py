"""The ``with autocast`` statement, or the decorator, around a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Edit, Frame, Place
from ..records.text import ProgramText
from .editing import torch_name
from .expressions import all_enclosing, expression_at, function_around
from .operands import located

AUTOCAST = "autocast"


def body(text: ProgramText, place: Place) -> Place | None:
    """The place from the first frame outwards whose function is not as a whole in a region: in the body of a ``with
    autocast`` statement, or at the call of a decorated function; None where there is none."""
    for level, frame in enumerate(place.stack):
        found = next(iter(all_enclosing(text, frame, AUTOCAST)), None)
        if found is not None:
            inner = level if isinstance(found[0], (ast.With, ast.AsyncWith)) else level + 1
            return Place(place.stack[inner:]) if place.stack[inner:] else None
    return None


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


def in_both_directions(text: ProgramText, frame: Frame, device: str) -> tuple[Edit, ...]:
    """The edits that make the backward of a hand-written function run under the autocast of its forward: torch's two
    decorators. ``frame`` runs in the backward; none where the text shows no such pair, or it is decorated already."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    if file is None or node is None or not (torch := torch_name(file)):
        return ()
    function = function_around(file, node)
    owner = file.parents.get(function)
    if not isinstance(owner, ast.ClassDef):
        return ()
    parts = {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}
    if "setup_context" in parts or not {"forward", "backward"} <= parts.keys():
        return ()
    if any("custom_" in ast.unparse(d) for name in ("forward", "backward") for d in parts[name].decorator_list):
        return ()
    lines = {"forward": "custom_fwd", "backward": "custom_bwd"}
    return tuple(
        file.line_before(parts[name], f'@{torch}.amp.{decorator}(device_type="{device}")')
        for name, decorator in lines.items()
    )
