"""How the program itself casts what another call of a function returned, written for a call that lacks the cast."""

from __future__ import annotations

import ast

from ..records import Change, Edit, Frame
from ..records.findings import CAST
from ..records.text import ProgramText
from .expressions import expression_at, function_around


def cast_as(text: ProgramText, casts: Frame, calls: Frame, dtype: str) -> Edit | None:
    """The edit that casts the result of the call that the second frame runs as the first frame casts another one, to
    ``dtype``; None where they are not in one function, or the cast names what only the function's own lines bind."""
    file, cast, call = text.parsed(casts.file), expression_at(text, casts), expression_at(text, calls)
    if file is None or casts.file != calls.file or not isinstance(cast, ast.Call) or not isinstance(call, ast.Call):
        return None
    scope = function_around(file, cast)
    if not isinstance(cast.func, ast.Attribute) or cast is call or scope is not function_around(file, call):
        return None
    given = [*cast.args, *(keyword.value for keyword in cast.keywords)]
    named = {node.id for value in given for node in ast.walk(value) if isinstance(node, ast.Name)}
    bound = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if named & bound or isinstance(file.parents.get(call), ast.Expr):
        return None
    method = f".{cast.func.attr}{file.between(file.end(cast.func), file.end(cast))}"
    return file.replaced(call, f"{file.segment(call)}{method}", Change(CAST, dtype))
