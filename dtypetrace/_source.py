"""Reading the program's text: which expression a frame was running, and what it says.

Standard library only. Text comes from ``linecache``, so notebook cells and ``python -c`` programs
that register there are found too; where there is no text every function says None.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache

from .records import Frame


@dataclass(frozen=True)
class Text:
    """A parsed file. ``ends`` lists the expressions that end at a (line, 1-based character column)."""

    lines: tuple[str, ...]
    tree: ast.Module
    ends: dict[tuple[int, int], list[ast.expr]]
    parents: dict[ast.AST, ast.AST]


@lru_cache(maxsize=256)
def _parse(text: str) -> Text | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    lines = tuple(text.splitlines(keepends=True))
    ends: dict[tuple[int, int], list[ast.expr]] = {}
    parents: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            parents[child] = node
        if isinstance(node, ast.expr):
            ends.setdefault((node.end_lineno, _characters(lines, node.end_lineno, node.end_col_offset)), []).append(node)
    return Text(lines, tree, ends, parents)


def text_of(file: str) -> Text | None:
    """The parsed text of a file, None where there is none or it does not parse."""
    lines = linecache.getlines(file)
    return _parse("".join(lines)) if lines else None


def _characters(lines: tuple[str, ...], line: int, offset: int) -> int:
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1


def start_of(text: Text, node: ast.AST) -> tuple[int, int]:
    return node.lineno, _characters(text.lines, node.lineno, node.col_offset)


def end_of(text: Text, node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, _characters(text.lines, node.end_lineno, node.end_col_offset)


def expression_at(frame: Frame) -> ast.expr | None:
    """The expression that the frame was running.

    It is matched by its end: for a method chain over several lines a CALL's position starts at the
    attribute, not where the expression starts.
    """
    text = text_of(frame.file)
    if text is None or frame.end_line is None or frame.end_column is None or frame.column is None:
        return None
    nodes = text.ends.get((frame.end_line, frame.end_column), [])
    if not nodes:
        return None
    begin = (frame.line, frame.column)
    # several expressions may end here (`a + f(x)`): the one that begins where the instruction does, or the
    # call whose attribute begins there, or the outermost call
    exact = [n for n in nodes if start_of(text, n) == begin]
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    return next(iter(exact), None) or next(iter(calls), None) or nodes[0]


def call_at(frame: Frame) -> ast.Call | None:
    """The call that the frame was in, None where it was running an operator or has no text."""
    node = expression_at(frame)
    return node if isinstance(node, ast.Call) else None


def unparse(node: ast.AST) -> str:
    """The expression on one line, as Python would write it."""
    return ast.unparse(node)


def callee(frame: Frame) -> str | None:
    """The dotted name that the frame was calling (``self.unet``), None where it is no plain name."""
    call = call_at(frame)
    return dotted(call.func) if call else None


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` for a name or a chain of attributes (subscripts by constant included), else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = dotted(node.value)
        return f"{base}[{node.slice.value!r}]" if base else None
    return None


def contains(text: Text, node: ast.AST, line: int, column: int) -> bool:
    return start_of(text, node) <= (line, column) <= end_of(text, node)


def function_around(text: Text, node: ast.AST) -> ast.AST:
    """The innermost function, lambda or module that holds the node."""
    while node in text.parents:
        node = text.parents[node]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return node
    return text.tree


def assignments(text: Text, near: ast.AST, name: str) -> list:
    """The statements that assign a name or attribute, in the function around ``near``, else in the whole file."""
    inside = _assignments_in(function_around(text, near), name)
    return inside or _assignments_in(text.tree, name)


def _assignments_in(scope: ast.AST, name: str) -> list:
    found = []
    for node in ast.walk(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (t for target in targets for t in ast.walk(target) if isinstance(t, (ast.Name, ast.Attribute)))
            if any(dotted(t) == name for t in parts):
                found.append(node)
    return found


def number(node: ast.expr) -> str | None:
    """The repr of a number written as a literal (``-1e9`` gives ``-1000000000.0``), else None."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return repr(value) if isinstance(value, (int, float, complex)) else None


def written(frame: Frame, value: str) -> str | None:
    """How the program writes a number, given its repr, in the expression that the frame was running (``-1e9``)."""
    node, text = expression_at(frame), text_of(frame.file)
    if node is None or text is None:
        return None
    found = next((n for n in ast.walk(node) if isinstance(n, (ast.UnaryOp, ast.Constant)) and number(n) == value), None)
    return ast.get_source_segment("".join(text.lines), found) if found is not None else None


def enclosing_with(frame: Frame, word: str) -> ast.With | None:
    """The innermost ``with`` statement around the frame's line whose items mention a name (``autocast``)."""
    text = text_of(frame.file)
    if text is None:
        return None
    found = None
    for node in ast.walk(text.tree):
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= frame.line <= (node.end_lineno or 0):
            mentions = any(word in ast.dump(item.context_expr) for item in node.items)
            if mentions and (found is None or node.lineno >= found.lineno):
                found = node
    return found
