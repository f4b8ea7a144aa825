"""How a call that makes a parameter asks for no gradient of integers. Text only."""

from __future__ import annotations

import ast

from ..records import Edit, Frame
from ..records.text import ParsedFile, ProgramText
from .expressions import assignments_in, call_at, dotted, function_around, last_part

_WITH_CLASS = frozenset({"__new__", "_make_subclass"})
"""Methods whose first argument is the class that they make."""


def untrained(text: ProgramText, frame: Frame, made: str) -> Edit | None:
    """The edit by which a call that makes a parameter of the class ``made`` asks for no gradient of integers: floating
    tensors that the same line makes parameters of keep theirs. None where the text does not show which argument is
    which, and for a call that makes something else, such as a module or a tensor."""
    file, call = text.parsed(frame.file), call_at(text, frame)
    if file is None or call is None or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    by_class = isinstance(call.func, ast.Attribute) and call.func.attr in _WITH_CLASS
    if not by_class and last_part(call.func) != made or not made[:1].isupper():
        return None
    given, named = call.args[by_class:], {k.arg: k.value for k in call.keywords}
    data = given[0] if given else named.get("data")
    asked = given[1] if len(given) > 1 else named.get("requires_grad")
    if data is None or None in named or asked is None and (by_class and last_part(call.func) == "_make_subclass"):
        return None
    floating = f"{file.segment(data)}.is_floating_point()" if dotted(data) else ""
    if asked is not None and not isinstance(asked, ast.Constant):
        is_more = isinstance(asked, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or _is_or(asked)
        flag = f"({file.segment(asked)})" if is_more else file.segment(asked)
        return file.replaced(asked, f"{flag} and {floating}") if floating else None
    if _differs(file, data) and not floating:
        return None
    wanted = floating if _differs(file, data) else "False"
    if asked is not None:
        return file.replaced(asked, wanted)
    segment = file.segment(call)
    inside = segment[: segment.rindex(")")].rstrip()
    comma = "" if inside.endswith("(") else " " if inside.endswith(",") else ", "
    return file.replaced(call, f"{inside}{comma}requires_grad={wanted}{segment[len(inside) :]}")


def _is_or(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)


def _differs(file: ParsedFile, data: ast.expr) -> bool:
    """Whether an expression reads an argument of its function, or what a loop goes through: one call or round may bring
    integers and another one floating numbers."""
    function = function_around(file, data)
    read = {n.id for n in ast.walk(data) if isinstance(n, ast.Name)}
    arguments = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)} - {"self"}
    loops = (n.target for n in ast.walk(function) if isinstance(n, (ast.For, ast.comprehension)))
    bound = {n.id for target in loops for n in ast.walk(target) if isinstance(n, ast.Name)}
    made = {name for name in read if assignments_in(function, name)}
    return bool(read & (arguments - made | bound))
