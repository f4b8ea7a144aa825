"""Which truth lets the program go on, from the text of the condition that asks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType

from ..records.text import LIVE
from ..source import expressions

_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


class Branches:
    """Answers conditions. A loop's condition is true once at each line, then false."""

    def __init__(self) -> None:
        self._entered: set[tuple[str, int]] = set()

    def answer(self, frame: FrameType) -> bool:
        """The truth of the expression that a frame is asking for."""
        text = LIVE.parsed(frame.f_code.co_filename)
        if text is None:
            return True
        line = frame.f_lineno
        for node in _around(text.tree, line):
            test = getattr(node, "test", None)
            if not isinstance(test, ast.expr) or not test.lineno <= line <= (test.end_lineno or test.lineno):
                continue
            wanted = self._wanted(node, frame.f_code.co_filename)
            return wanted is not _negated(test, *_position(frame))
        return True

    def _wanted(self, node: ast.AST, file: str) -> bool:
        if isinstance(node, ast.While):
            key = file, node.lineno
            entered = key in self._entered
            self._entered ^= {key}
            return not entered
        if isinstance(node, ast.If):
            body, other = _leaves(node.body), bool(node.orelse) and _leaves(node.orelse)
            return other or not body
        return True


def _around(tree: ast.AST, line: int) -> Iterator[ast.AST]:
    """The nodes that a line is in, innermost first."""
    found: list[ast.AST] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    yield from reversed(found)


def _position(frame: FrameType) -> tuple[int, int]:
    """Line and column at which the expression begins whose truth is asked."""
    positions = list(frame.f_code.co_positions())
    index = frame.f_lasti // 2
    line, _, column, _ = positions[index] if index < len(positions) else (None, None, None, None)
    return line or frame.f_lineno, column or 0


def _negated(test: ast.expr, line: int, column: int) -> bool:
    """Whether an odd number of ``not`` stands around the expression that begins at a position."""
    negations = 0
    for node in ast.walk(test):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = node.operand
            begin, end = (inner.lineno, inner.col_offset), (inner.end_lineno or 0, inner.end_col_offset or 0)
            negations += begin <= (line, column) <= end
    return negations % 2 == 1


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a block ends the loop, the function or the program."""
    last = body[-1]
    if isinstance(last, _LEAVES):
        return True
    return isinstance(last, ast.Expr) and expressions.exits(last.value)
