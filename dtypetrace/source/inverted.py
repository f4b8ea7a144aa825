"""Masks that are inverted as numbers: ``1 - mask``, which torch refuses for truth values, and ``~mask``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeGuard

from ..records import Edit, Frame
from ..records.text import ParsedFile, ProgramText
from .expressions import dotted, expression_at, function_around

_CASTS = frozenset({"to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "bool", "sum"})
"""Methods that make numbers of truth values."""
_TAKE_MASKS = frozenset(
    {"masked_fill", "masked_fill_", "masked_select", "masked_scatter", "masked_scatter_", "where", "logical_and"}
)
"""Functions whose first argument is a mask."""


def masks(text: ProgramText, frame: Frame, made: Iterable[Frame], ran: Iterable[Frame]) -> tuple[Edit, ...]:
    """The edits that invert masks by ``~`` where the frame subtracts one from 1, and where its function does so with
    others; ``made``: frames that made truth values; ``ran``: those that subtracted something else, which ``~`` would
    not invert. None where the result is neither a mask, nor multiplied, cast or counted, or is added up with others:
    the sum of truth values is none of numbers."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    if file is None or node is None or not _is_inversion(node):
        return ()
    around, numbers = function_around(file, node), {(f.line, f.column) for f in ran if f.file == file.path}
    bound = _bound(file, around, made)
    known = {name for name, are in bound.items() if all(are)}
    known |= {dotted(node.right) or ""} - {"", *bound}  # given to the function, and the same all through it
    found = [n for n in ast.walk(around) if _is_inversion(n) and (n is node or dotted(n.right) in known)]
    stays = [
        n for n in found if file.start(n) not in numbers and (_is_mask(file, n) or _is_number_later(file, n, known))
    ]
    edits = (file.replaced(n, f"~{_whole(file.segment(n.right), n.right)}") for n in stays)
    return tuple(edit for edit in edits if edit is not None) if node in stays else ()


def _is_inversion(node: ast.AST) -> TypeGuard[ast.BinOp]:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub) or not isinstance(node.left, ast.Constant):
        return False
    return type(node.left.value) is not bool and node.left.value == 1


def _is_mask(file: ParsedFile, node: ast.expr) -> bool:
    """Whether an expression picks elements: as an index, or as the mask of a call."""
    above = file.parents.get(node)
    if isinstance(above, ast.Call) and above.args[:1] == [node]:
        called = above.func.attr if isinstance(above.func, ast.Attribute) else dotted(above.func)
        return called in _TAKE_MASKS
    return isinstance(above, ast.Subscript) and above.slice is node


def _is_number_later(file: ParsedFile, node: ast.expr, known: set[str]) -> bool:
    above, factors = file.parents.get(node), list[ast.expr]()
    if isinstance(above, ast.Attribute):
        return above.attr in _CASTS
    while isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult):
        factors.append(above.right if above.left is node else above.left)
        node, above = above, file.parents.get(above)
    added = isinstance(above, ast.BinOp) and isinstance(above.op, (ast.Add, ast.Sub))
    true = lambda n: dotted(n) in known or isinstance(n, ast.Compare) or _is_inversion(n)
    return bool(factors) and not (added and all(map(true, factors)))


def _bound(file: ParsedFile, around: ast.AST, made: Iterable[Frame]) -> dict[str, list[bool]]:
    """The names that a scope assigns, each with whether its assignments are of truth values."""
    at = {(f.line, f.column) for f in made if f.file == file.path}
    bound: dict[str, list[bool]] = {}
    for node in ast.walk(around):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and (name := dotted(node.targets[0])):
            bound.setdefault(name, []).append(file.start(node.value) in at)
    return bound


def _whole(written: str, node: ast.expr) -> str:
    return written if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({written})"
