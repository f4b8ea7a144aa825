"""Exceptions that the program itself handles: the ``try`` and ``suppress`` statements around a refused call, found in
the text."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType

from ..capture.protocols import Opened
from ..records.text import LIVE
from ..source import expressions

_RERAISING = tuple(
    os.path.join(os.path.dirname(os.__file__), package) + os.sep for package in ("asyncio", "concurrent")
)
"""Files that catch every exception and raise it again where the task or future is awaited."""
_KNOWN_LINES = 4096
"""Lines whose statements are remembered: more than the lines at which one run heals."""


def handled(
    error: Exception, frame: FrameType | None, hidden: Callable[[str], bool], opened: Opened | None = None
) -> bool:
    """Whether a ``try`` or ``suppress`` on the stack catches the exception and neither raises it again nor exits.

    ``opened`` is where the trace begins: statements around the trace do not count.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    while frame is not None:
        code = frame.f_code
        last = opened is not None and (id(frame), code) == (opened.frame, opened.code)
        after = opened.line if opened is not None and last else 0
        asked = not hidden(code.co_filename) and code.co_exceptiontable and not code.co_filename.startswith(_RERAISING)
        if asked and any(names & kinds for names in _caught(code, frame.f_lineno, after)):
            return True
        frame = None if last else frame.f_back
    return False


@lru_cache(maxsize=_KNOWN_LINES)
def _caught(code: CodeType, line: int, after: int) -> tuple[frozenset[str], ...]:
    """For each statement around a line that begins after another line: the names of exceptions that it catches for
    good."""
    text = LIVE.parsed(code.co_filename)
    return tuple(
        names
        for node in (ast.walk(text.tree) if text is not None else ())
        if isinstance(node, (ast.Try, ast.With)) and max(code.co_firstlineno, after + 1) <= node.lineno
        if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        for names in _caught_by(node)
    )


def _caught_by(node: ast.Try | ast.With) -> Iterator[frozenset[str]]:
    if isinstance(node, ast.Try):
        yield from (_names(handler.type) for handler in node.handlers if not _goes_on(handler))
        return
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and (expressions.dotted(call.func) or "").split(".")[-1] == "suppress":
            yield _names(ast.Tuple(call.args))


def _names(node: ast.expr | None) -> frozenset[str]:
    if node is None:
        return frozenset({"BaseException"})
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return frozenset((expressions.dotted(part) or "").split(".")[-1] for part in parts)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler lets the exception pass: it raises, or it ends the program."""
    return any(isinstance(n, ast.Raise) or expressions.exits(n) for n in ast.walk(handler))
