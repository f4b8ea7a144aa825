"""Reading the program's text: which expression a frame was running, and what it says.

Standard library only. Text comes from ``linecache``, so notebook cells and ``python -c`` programs
that register there are found too; where there is no text every function says None.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..records import Frame, Place
from .lines import lines_of


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
    lines = tuple(lines_of(text))
    ends: dict[tuple[int, int], list[ast.expr]] = {}
    parents: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            parents[child] = node
        if isinstance(node, ast.expr):
            ends.setdefault((node.end_lineno, _characters(lines, node.end_lineno, node.end_col_offset)), []).append(
                node
            )
    return Text(lines, tree, ends, parents)


def text_of(file: str) -> Text | None:
    """The parsed text of a file, None where there is none or it does not parse."""
    try:
        lines = linecache.getlines(file)
    except ValueError:  # a name that no file can have
        return None
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
    begin = (frame.line, frame.column)
    # the last statement of a loop's body ends where the loop does, and is not what the loop was at
    nodes = [
        n for n in text.ends.get((frame.end_line, frame.end_column), []) if start_of(text, _statement(text, n)) <= begin
    ]
    if not nodes:
        return None
    # several expressions may end here (`a + f(x)`): the one that begins where the instruction does, or the
    # call whose attribute begins there, or the outermost call
    exact = [n for n in nodes if start_of(text, n) == begin]
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    return next(iter(exact), None) or next(iter(calls), None) or nodes[0]


def _statement(text: Text, node: ast.AST) -> ast.AST:
    while not isinstance(node, ast.stmt) and (above := text.parents.get(node)) is not None:
        node = above
    return node


def call_at(frame: Frame) -> ast.Call | None:
    """The call that the frame was in, None where it was running an operator or has no text."""
    node = expression_at(frame)
    return node if isinstance(node, ast.Call) else None


def names_dtype(frame: Frame) -> bool:
    """Whether the call that the frame was in names a dtype by keyword; ``"auto"`` and None name none."""
    return dtype_keyword(frame) is not None


def dtype_keyword(frame: Frame) -> ast.expr | None:
    """The dtype that the call is given by keyword, as ``from_pretrained`` is."""
    call = call_at(frame)
    named = (k.value for k in call.keywords if k.arg in ("dtype", "torch_dtype")) if call is not None else ()
    return next((value for value in named if not isinstance(value, ast.Constant)), None)


def called(place: Place) -> str:
    """What the user's own line called where something happened inside a library (``T5EncoderModel``), else empty."""
    frame = place.user_frame
    if frame is None or frame is place.stack[0]:
        return ""
    inner = place.stack[place.stack.index(frame) - 1].function.removesuffix(".__init__")
    return callee(frame) or inner


def unparse(node: ast.AST) -> str:
    """The expression on one line, as Python would write it."""
    return ast.unparse(node)


def callee(frame: Frame) -> str | None:
    """The dotted name that the frame was calling (``self.unet``), None where it is no plain name."""
    call = call_at(frame)
    return dotted(call.func) if call else None


def dtype_argument(call: ast.Call) -> ast.expr | None:
    """The expression that names a call's dtype: ``dtype=``, else the last argument that is no plain constant."""
    for keyword in call.keywords:
        if keyword.arg == "dtype":
            return keyword.value
    candidates = [a for a in call.args if not isinstance(a, (ast.Constant, ast.Starred))]
    return candidates[-1] if candidates else next((k.value for k in call.keywords if k.arg is None), None)


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


_LONGEST = 32


@lru_cache(maxsize=64)
def _namespaces(tree: ast.Module) -> frozenset[str]:
    """The names by which a file calls torch and its modules (``import torch as th``)."""
    found = {"torch", "F", "nn"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {a.asname for a in node.names if a.asname and f"{of}{a.name}".split(".")[0] == "torch"}
    return frozenset(found)


def argument(frame: Frame, op: str, module: str, name: str, index: int) -> str:
    """How the program writes one operand of the call that the frame was in (``q * turn``); empty where that is not plain.

    name and index are the operand's own in the signature of ``op``. A module's call with one argument, such as
    ``self.proj(x)``, stands for the op that the module runs, whose ``input`` is what the module is given.
    """
    return plain(operand_node(frame, op, module, name, index))


def taken(frame: Frame) -> list[str]:
    """How the program writes the operands of the operator or call that the frame was in, where that is plain."""
    node = expression_at(frame)
    if isinstance(node, ast.BinOp):
        return [plain(node.left), plain(node.right)]
    return [plain(a) for a in (*node.args, *(k.value for k in node.keywords))] if isinstance(node, ast.Call) else []


def passed(frame: Frame, name: str, position: int) -> str:
    """How the program writes an argument of the call that the frame was in, else the argument's own name."""
    item = "[" + name.partition("[")[2] if "[" in name else ""  # one of several that were passed as one
    written = plain(passed_node(frame, name, position))
    return written + item if written else name


def passed_node(frame: Frame, name: str, position: int) -> ast.AST | None:
    """The expression of an argument, by its position or, where that is -1, its name."""
    call = call_at(frame)
    if call is None:
        return None
    if position < 0:
        return next((k.value for k in call.keywords if k.arg == name.partition("[")[0]), None)
    before = call.args[: position + 1]
    return before[-1] if len(before) > position and not any(isinstance(a, ast.Starred) for a in before) else None


def plain(node: ast.AST | None) -> str:
    """An expression's text, empty where it is no name for a tensor or is long; of a long call its end, ``(...).softmax(-1)``."""
    if node is None or isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.Starred)):
        return ""
    text = unparse(node)
    if isinstance(node, ast.Call) and len(text) > _LONGEST:
        name = dotted(node.func)
        given = ", ".join(map(unparse, (*node.args, *node.keywords)))
        text = (
            f"{name}(...)"
            if name
            else f"(...).{node.func.attr}({given})"
            if isinstance(node.func, ast.Attribute)
            else text
        )
    return text if len(text) <= _LONGEST and "\n" not in text else ""


_REFLECTED = frozenset(
    [
        "radd",
        "rsub",
        "rmul",
        "rdiv",
        "rtruediv",
        "rfloordiv",
        "rmod",
        "rpow",
        "rmatmul",
        "rand",
        "ror",
        "rxor",
        "rlshift",
        "rrshift",
    ]
)
"""Operators that Python asks the right operand for: ``1 - x`` is ``x.__rsub__(1)``."""


def operand_node(frame: Frame, op: str, module: str, name: str, index: int) -> ast.AST | None:
    """The expression of one operand of the call that the frame was in; see :func:`argument`."""
    node, text = expression_at(frame), text_of(frame.file)
    if node is None or text is None:
        return None
    statement = text.parents.get(node)
    if augmented(frame) is not None:
        return (statement.target, statement.value)[index] if index < 2 else None
    if isinstance(statement, ast.Assign) and node in statement.targets:  # x.grad = value, x[index] = value
        parts = {"value": statement.value, "self": getattr(node, "value", None), "index": getattr(node, "slice", None)}
        return parts.get(name)
    if isinstance(node, ast.BinOp):
        sides = (node.right, node.left) if op in _REFLECTED else (node.left, node.right)
        return sides[index] if index < 2 else None
    if not isinstance(node, ast.Call):
        return None
    owner, called = (
        (node.func.value, node.func.attr)
        if isinstance(node.func, ast.Attribute)
        else (None, getattr(node.func, "id", ""))
    )
    if module and (module == dotted(node.func) or module.rpartition(".")[2] == called):
        return (
            node.args[0] if index == 0 and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred) else None
        )
    of_torch = owner is not None and (dotted(owner) or "").split(".")[0] in _namespaces(text.tree)
    if called != op and not (of_torch and op.endswith(f"_{called}")):
        return None
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    arguments = node.args if owner is None or of_torch else [owner, *node.args]
    if name.endswith("]"):  # one of a list, the first argument
        listed = arguments and isinstance(arguments[0], (ast.List, ast.Tuple))
        items = arguments[0].elts if listed else arguments[1:] if op == "einsum" else arguments
        number = name.partition("[")[2][:-1]
        number = int(number) if number.isdecimal() else len(items)
        return (
            items[number]
            if number < len(items) and not any(isinstance(i, (ast.Starred, ast.List)) for i in items)
            else None
        )
    # a list before it would move the numbers, as a norm's shape does
    before = arguments[: index + 1]
    plain = len(before) > index and not any(isinstance(a, (ast.Starred, ast.List, ast.Tuple)) for a in before)
    return before[-1] if plain and (index == 0 or "norm" not in op) else None


def handed(place: Place, module: str, node: ast.AST | None, made: Place) -> ast.AST | None:
    """The expression of the user's own call that a library handed on, under names of its own, to an operand's place.

    node is the operand in the innermost frame, made is where the operand was. None where a function on the way gave its
    argument another value, or was called in a way that does not tell one argument from another.
    """
    makers = {(frame.file, frame.function) for frame in made.stack}
    for frame, caller in zip(place.stack, place.stack[1:]):
        text = text_of(frame.file)
        if not isinstance(node, ast.Name) or text is None:
            return None
        function = function_around(text, node)
        inside = not makers or (frame.file, frame.function) in makers  # then an assignment may have been its birth
        if not isinstance(function, ast.FunctionDef) or inside and _assignments_in(function, node.id):
            return None
        node = _given(function, isinstance(text.parents.get(function), ast.ClassDef), node.id, call_at(caller), module)
        if caller.user:
            return node
    return None


def callers(place: Place, node: ast.AST | None, module: str) -> Iterator[tuple[Place, ast.AST]]:
    """The expressions in the user's calls further out that were handed on, under names of their own, to an operand, the
    nearest first, each with its place; node is the operand in the innermost frame."""
    for level, (frame, caller) in enumerate(zip(place.stack, place.stack[1:]), 1):
        text = text_of(frame.file)
        if not isinstance(node, ast.Name) or text is None:
            return
        function = function_around(text, node)
        if not isinstance(function, ast.FunctionDef) or _assignments_in(function, node.id):
            return
        node = _given(function, isinstance(text.parents.get(function), ast.ClassDef), node.id, call_at(caller), module)
        if node is not None and caller.user:
            yield Place(place.stack[level:]), node


def _given(function: ast.FunctionDef, method: bool, name: str, call: ast.Call | None, module: str) -> ast.AST | None:
    """What a call gives for a function's argument. A module that is called runs its ``forward``."""
    called = (dotted(call.func) or "").rpartition(".")[2] if call is not None else ""
    if not called or called != function.name and not (function.name == "forward" and called in module.split(".")):
        return None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][method:]
    given = {**dict(zip(names, call.args)), **{k.arg: k.value for k in call.keywords}}
    plain = not any(isinstance(a, ast.Starred) for a in call.args) and None not in given
    return given.get(name) if plain and len(call.args) <= len(names) else None


def augmented(frame: Frame) -> ast.AugAssign | None:
    """The statement of the form ``x += y`` that the frame was running, if it was one."""
    node, text = expression_at(frame), text_of(frame.file)
    statement = text.parents.get(node) if node is not None and text is not None else None
    return (
        statement
        if isinstance(statement, ast.AugAssign) and start_of(text, statement) == (frame.line, frame.column)
        else None
    )


def raises(frame: Frame) -> bool:
    """Whether the frame was raising an exception: what it checked was passed to it by its caller."""
    node, text = expression_at(frame), text_of(frame.file)
    while text is not None and isinstance(node, ast.expr):
        node = text.parents.get(node)
    return isinstance(node, ast.Raise)


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
