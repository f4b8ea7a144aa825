"""How a function that changes torch's default dtype ends without setting it back. Pure functions over the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..records import Edit, Place
from ..records.text import ParsedFile, ProgramText
from .decisions import spelled
from .expressions import dotted, expression_at, function_around, last_part

_SETTER = "set_default_dtype"


@dataclass(frozen=True)
class Leak:
    """A function that leaves another default dtype behind, and the edits that set it back at each such end."""

    function: str
    line: int
    """Of its first end at which the default is not set back."""
    edits: tuple[Edit, ...]


def leak(text: ProgramText, place: Place, dtype: str) -> Leak | None:
    """How the function that sets the default at a place leaves it; None where it sets it back, or that is unclear.

    ``dtype`` is the default to set back. A ``return`` whose value is computed in the statement itself is unclear: that
    value may need the other default.
    """
    found = _setting(text, place)
    if found is None:
        return None
    file, function, call = found
    setter = dotted(call.func)
    returns = [r for r in _returns(function) if r.lineno > call.lineno and not _set_back(file, function, r, call)]
    falls = not isinstance(function.body[-1], (ast.Return, ast.Raise)) and not _set_back(file, function, None, call)
    if setter is None or last_part(call.func) != _SETTER or not returns and not falls:
        return None
    if not all(_plain(r.value) for r in returns) or not all(_alone(file, r) for r in returns):
        return None
    line = f"{setter}({setter.removesuffix(_SETTER)}{dtype})"
    edits = [file.line_before(r, line) for r in returns]
    if falls:
        edits.append(_after(file, function.body[-1], line))
    ends = [r.lineno for r in returns] or [function.end_lineno or function.lineno]
    return Leak(function.name, min(ends), tuple(edits))


@dataclass(frozen=True)
class Skipped:
    """A function whose line that sets the default back can be skipped by an exception; the edit that puts this line
    into a ``finally``, none where the text in between cannot be indented."""

    function: str
    line: int
    edits: tuple[Edit, ...]


def skipped(text: ProgramText, place: Place, dtype: str) -> Skipped | None:
    """The line that sets the default again and that only an exception can skip, after the call at a place. None where
    there is no such line, where it names another dtype, or where the function can be left and entered again: the one
    ``yield`` of a context manager is where its body raises."""
    found = _setting(text, place)
    if found is None:
        return None
    file, function, call = found
    left = [node for node in ast.walk(function) if isinstance(node, (ast.Yield, ast.YieldFrom))]
    if left and (len(left) > 1 or not any(last_part(d) == "contextmanager" for d in function.decorator_list)):
        return None
    again = next((s for s in function.body if _sets(s) and s.lineno > call.lineno), None)
    if again is None or any(call.lineno < r.lineno < again.lineno for r in _returns(function)):
        return None
    if any(spelled(a) not in ("", dtype) for s in ast.walk(again) if isinstance(s, ast.Call) for a in s.args):
        return None
    first = next((n for n, s in enumerate(function.body) if file.start(s) == file.start(call)), -1)
    between = function.body[first + 1 : function.body.index(again)] if first >= 0 else []
    return Skipped(function.name, again.lineno, _into_finally(file, between, again))


def _into_finally(file: ParsedFile, body: Sequence[ast.stmt], last: ast.stmt) -> tuple[Edit, ...]:
    """The edit that puts statements into a ``try``, and the one after them into its ``finally``."""
    if not body or not all(_alone(file, s) for s in (*body, last)) or any(map(_spans_lines, body)):
        return ()
    start, end = file.start(body[0]), file.end(last)
    outer = file.indent(last)
    before = file.between(start, end)
    lines = [line and f"{_STEP}{line}" for line in f"{outer}{before}".split("\n")]
    at = last.lineno - start[0]
    after = "\n".join(["try:", *lines[:at], f"{outer}finally:", *lines[at:]])
    return (Edit(file.path, start, end, before, after),)


_STEP = "    "


def _spans_lines(statement: ast.stmt) -> bool:
    """Whether a statement holds a text of several lines, which a new indent would change."""
    texts = (n for n in ast.walk(statement) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    return any((n.end_lineno or n.lineno) > n.lineno for n in texts)


def _setting(text: ProgramText, place: Place) -> tuple[ParsedFile, ast.FunctionDef, ast.Call] | None:
    file = text.parsed(place.file)
    call = expression_at(text, place.stack[0]) if place.stack else None
    function = function_around(file, call) if file is not None and call is not None else None
    if file is None or not isinstance(call, ast.Call) or not isinstance(function, ast.FunctionDef):
        return None
    return file, function, call


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """The ``return`` statements of a function, without those of the functions in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def _set_back(file: ParsedFile, function: ast.FunctionDef, end: ast.Return | None, call: ast.Call) -> bool:
    """Whether the default is set again after ``call``, on the way to an end of the function (None: its last line)."""
    return any(
        _sets(statement) and statement.lineno > call.lineno
        for block in _blocks_around(file, function, end)
        for statement in block
    )


def _blocks_around(file: ParsedFile, function: ast.FunctionDef, end: ast.Return | None) -> Iterator[Sequence[ast.stmt]]:
    """The statements that always run before an end: those before it in its block, and in the blocks around that; what
    a ``finally`` around it holds runs, too."""
    if end is None:
        yield function.body
        yield from (s.finalbody for s in function.body if isinstance(s, ast.Try))
        return
    node: ast.AST = end
    while node is not function:
        parent = file.parents[node]
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and node in block:
                yield block[: block.index(node)]
        if isinstance(parent, ast.Try) and node not in parent.finalbody:
            yield parent.finalbody
        node = parent


def _sets(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Call) and last_part(value.func) == _SETTER


def _plain(value: ast.expr | None) -> bool:
    """Whether a returned value is only named, not computed."""
    return value is None or not any(isinstance(n, (ast.Call, ast.BinOp, ast.Subscript)) for n in ast.walk(value))


def _alone(file: ParsedFile, statement: ast.stmt) -> bool:
    """Whether a statement has its line to itself."""
    return not file.indent(statement).strip()


def _after(file: ParsedFile, statement: ast.stmt, added: str) -> Edit:
    """The edit that puts a line after a function's last statement."""
    line = file.start(statement)[0]
    indent = file.lines[line - 1][: len(file.lines[line - 1]) - len(file.lines[line - 1].lstrip())]
    end, last = file.end(statement), file.segment(statement).rpartition("\n")[2]
    return Edit(file.path, (end[0], end[1] - 1), end, last[-1:], f"{last[-1:]}\n{indent}{added}")
