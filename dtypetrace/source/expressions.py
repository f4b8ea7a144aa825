"""Reads the program's text: which expression a frame was running, and what it contains.

Pure functions over a :class:`~dtypetrace.records.text.ProgramText`; without the text of a file, they return None.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..records import Frame, Place
from ..records.text import ParsedFile, ProgramText
from ..tables.operators import NAMED_CASTS

Assignment = ast.Assign | ast.AnnAssign | ast.NamedExpr
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_EXITS = frozenset({"exit", "_exit", "quit", "abort", "fail"})


def expression_at(text: ProgramText, frame: Frame) -> ast.expr | None:
    """The expression that the frame was running.

    It is matched by its end: in a method chain over several lines, a CALL's position starts at the attribute, not where
    the expression starts.
    """
    if frame.end_line is None or frame.end_column is None or frame.column is None:
        return None
    file = text.parsed(frame.file)
    if file is None:
        return None
    begin = (frame.line, frame.column)
    # the last statement of a loop's body ends where the loop ends, but it may not be the one that was running
    nodes = [
        n for n in file.ends.get((frame.end_line, frame.end_column), ()) if file.start(_statement(file, n)) <= begin
    ]
    # several expressions may end here (`a + f(x)`): take the one that begins where the instruction does, or the call
    # whose attribute begins there, or the outermost call
    exact = (n for n in nodes if file.start(n) == begin)
    calls = (n for n in nodes if isinstance(n, ast.Call))
    return next(exact, None) or next(calls, None) or next(iter(nodes), None)


def _statement(file: ParsedFile, node: ast.expr) -> ast.expr | ast.stmt:
    found: ast.AST = node
    while not isinstance(found, ast.stmt) and (above := file.parents.get(found)) is not None:
        found = above
    return found if isinstance(found, ast.stmt) else node


def call_at(text: ProgramText, frame: Frame) -> ast.Call | None:
    """The call that the frame was in; None where it was running an operator or has no text."""
    node = expression_at(text, frame)
    return node if isinstance(node, ast.Call) else None


def own_call(text: ProgramText, place: Place) -> tuple[ParsedFile, ast.Call] | None:
    """The call that the user's own frame of a place was in, and its file; None where it was in none."""
    frame = place.user_frame
    file, call = (text.parsed(frame.file), call_at(text, frame)) if frame is not None else (None, None)
    return (file, call) if file is not None and call is not None else None


def passed(call: ast.Call, names: Sequence[str], name: str) -> tuple[bool, ast.expr | None]:
    """What a call passes for an argument, where those that may be given by position have these names: whether that is
    clear, and the expression (None where it is left out)."""
    by_name = next((k.value for k in call.keywords if k.arg == name), None)
    if by_name is not None:
        return True, by_name
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        return False, None
    number = names.index(name) if name in names else len(call.args)
    return True, next(iter(call.args[number : number + 1]), None)


def arguments(call: ast.Call) -> tuple[ast.expr, ...]:
    """The arguments of a call, those by position and those by name."""
    return (*call.args, *(k.value for k in call.keywords))


def dtype_keyword(text: ProgramText, frame: Frame) -> ast.expr | None:
    """The dtype that the frame's call names by keyword, as ``from_pretrained`` does; ``"auto"`` and None do not
    count."""
    call = call_at(text, frame)
    named = (k.value for k in call.keywords if k.arg in ("dtype", "torch_dtype")) if call is not None else ()
    return next((value for value in named if not _leaves_open(value)), None)


def _leaves_open(named: ast.expr) -> bool:
    return isinstance(named, ast.Constant) and named.value in ("auto", None)


def callee(text: ProgramText, frame: Frame) -> str | None:
    """The dotted name that the frame was calling (``self.unet``), None where it is not a plain name."""
    call = call_at(text, frame)
    return dotted(call.func) if call else None


def called(text: ProgramText, place: Place) -> str:
    """What the user's own line called where something happened inside a library (``T5EncoderModel``), else empty."""
    frame = place.user_frame
    if frame is None or frame is place.stack[0]:
        return ""
    inner = place.stack[place.stack.index(frame) - 1].function.removesuffix(".__init__")
    return callee(text, frame) or inner


def cast_name(text: ProgramText, frame: Frame) -> str:
    """The name of what a cast casts (``x`` in ``x.to(y.dtype)``); empty where it has none."""
    call = call_at(text, frame)
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr not in NAMED_CASTS:
        return ""
    return dotted(call.func.value) or ""


def cast_inside_and_back(text: ProgramText, place: Place, cast: Place, op: str) -> bool:
    """Whether a call by a function's own name (``F.linear(x.float(), self.weight)``) contains a cast of a name, and the
    function later casts something to the dtype that this name had."""
    frame, inner = next(iter(place.stack), None), next(iter(cast.stack), None)
    call, made = (call_at(text, f) if f is not None else None for f in (frame, inner))
    file = text.parsed(frame.file) if frame is not None else None
    if file is None or frame is None or inner is None or call is None or made is None or inner.file != frame.file:
        return False
    name = cast_name(text, inner)
    if last_part(call.func) != op or not name or made not in arguments(call):
        return False
    later = (n for n in ast.walk(function_around(file, call)) if isinstance(n, ast.Call) and n.lineno >= call.lineno)
    casts = (
        n for n in later if n is not made and isinstance(n.func, ast.Attribute) and n.func.attr in ("to", "type_as")
    )
    return any(dotted(a) in (f"{name}.dtype", name) for n in casts for a in arguments(n))


def used_again(text: ProgramText, place: Place, node: ast.expr | None) -> bool:
    """Whether the function of a place reads a name more than once."""
    file = text.parsed(place.file) if isinstance(node, ast.Name) else None
    if file is None or not isinstance(node, ast.Name):
        return False
    names = (n for n in ast.walk(function_around(file, node)) if isinstance(n, ast.Name) and n.id == node.id)
    return sum(isinstance(n.ctx, ast.Load) for n in names) > 1


def never_read(text: ProgramText, frame: Frame) -> bool:
    """Whether what the frame was computing is only given to an attribute that no other line of the program mentions,
    and the program never looks at the attributes of an object as a whole."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    statement = file.parents.get(node) if file is not None and node is not None else None
    if not isinstance(statement, ast.Assign) or statement.value is not node or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Attribute):
        return False
    named = re.compile(rf"\b{re.escape(target.attr)}\b")
    whole = "".join("".join(text.lines(name)) for name in text.files)
    own = "".join(text.lines(frame.file))
    return len(named.findall(whole)) == 1 and not _ALL_ATTRIBUTES.search(own)


_ALL_ATTRIBUTES = re.compile(r"\b(vars|__dict__|getattr|asdict|astuple|save|dump|dumps|deepcopy|copy|state_dict)\b")


def by_size(text: ProgramText, frames: Sequence[Frame]) -> bool:
    """Whether the number that the first frame was reading, or the name that it is given to, is divided, is a divisor,
    or is compared by its size, perhaps after more arithmetic; or is returned to the next frame, where that is so."""
    file = text.parsed(frames[0].file) if frames else None
    node = expression_at(text, frames[0]) if frames else None
    if file is None or node is None:
        return False
    takers = [_taker(file, node)]
    statement = file.parents.get(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {dotted(t) for t in targets if not isinstance(t, ast.Subscript)} - {None}
    reads = [n for n in ast.walk(function_around(file, node)) if isinstance(n, ast.Name | ast.Attribute)]
    takers += [_taker(file, n) for n in reads if dotted(n) in names and isinstance(n.ctx, ast.Load)]
    returned = any(isinstance(t, ast.Return) for t in takers)
    return any(map(_sizes, takers)) or returned and by_size(text, frames[1:])


def _taker(file: ParsedFile, node: ast.AST) -> ast.AST | None:
    """What takes the number that an expression is, perhaps after more arithmetic."""
    above = file.parents.get(node)
    while isinstance(above, ast.UnaryOp | ast.BinOp | ast.Call):
        computes = isinstance(getattr(above, "op", ast.Add()), ast.UAdd | ast.USub | ast.Add | ast.Sub | ast.Mult)
        if not computes or isinstance(above, ast.Call) and dotted(above.func) not in _SIZES:
            break
        above = file.parents.get(above)
    return above


def _sizes(taker: ast.AST | None) -> bool:
    if isinstance(taker, ast.BinOp):
        return isinstance(taker.op, ast.Div)
    return isinstance(taker, ast.Compare) and any(isinstance(o, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for o in taker.ops)


_SIZES = frozenset({"int", "float", "abs", "min", "max"})
"""Functions after which a number is still one."""


def raises(text: ProgramText, frame: Frame) -> bool:
    """Whether the frame was raising an exception; then its caller passed in the value that it checked."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    above: ast.AST | None = node
    while file is not None and isinstance(above, ast.expr):
        above = file.parents.get(above)
    return isinstance(above, ast.Raise)


def augmented(text: ProgramText, frame: Frame) -> ast.AugAssign | None:
    """The statement of the form ``x += y`` that the frame was running, if it was one."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    statement = file.parents.get(node) if file is not None and node is not None else None
    if file is None or not isinstance(statement, ast.AugAssign):
        return None
    return statement if file.start(statement) == (frame.line, frame.column) else None


# ---------------------------------------------------------------- the parts of an expression


def exits(node: ast.AST | None) -> bool:
    """Whether it is a call that ends the program or the test, as far as its name tells."""
    return isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] in _EXITS


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


def last_part(node: ast.AST) -> str:
    """``c`` of ``a.b.c``; empty where it is not a dotted name."""
    return (dotted(node) or "").rpartition(".")[2]


def dtype_argument(call: ast.Call) -> ast.expr | None:
    """The expression that names a call's dtype: ``dtype=``, else the last argument that is not a plain constant."""
    for keyword in call.keywords:
        if keyword.arg == "dtype":
            return keyword.value
    candidates = [a for a in call.args if not isinstance(a, (ast.Constant, ast.Starred))]
    return candidates[-1] if candidates else next((k.value for k in call.keywords if k.arg is None), None)


def number(node: ast.AST) -> str | None:
    """The repr of a number that literals alone make (``-1e9`` gives ``-1000000000.0``, and so does ``-float(10**9)``),
    else None."""
    try:
        value = _number(node)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return repr(value) if value is not None else None


def _number(node: ast.AST) -> Any:
    """The number that an expression of literals makes; None for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float, complex)) else None
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        value = _number(node.operand)
        return None if value is None else _UNARY[type(node.op)](value)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _number(node.left), _number(node.right)
        large = isinstance(node.op, ast.Pow) and not (abs(left or 0) <= _LARGE and abs(right or 0) <= _LARGE)
        return None if left is None or right is None or large else _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call) and dotted(node.func) in ("float", "int") and len(arguments(node)) == 1:
        value = _number(node.args[0]) if node.args else None
        return None if value is None else {"float": float, "int": int}[str(dotted(node.func))](value)
    return None


_UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_LARGE = 128
"""No power of more is computed."""


def exponent(text: ProgramText, frame: Frame) -> float | None:
    """The exponent of the power that the frame was computing, where it is a literal (``x**2``, ``x **= 2``,
    ``x.pow(exponent=-0.5)``)."""
    node = augmented(text, frame) or expression_at(text, frame)
    raised: ast.expr | None = None
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Pow):
        raised = node.right if isinstance(node, ast.BinOp) else node.value
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("pow", "pow_"):
        raised = next((k.value for k in node.keywords if k.arg == "exponent"), next(iter(node.args[-1:]), None))
    value = number(raised) if raised is not None else None
    return float(value) if value is not None and "j" not in value else None


def written(text: ProgramText, frame: Frame, value: str) -> str | None:
    """How the program writes a number, given its repr, in the expression that the frame was running (``-1e9``)."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    if node is None or file is None:
        return None
    numbers = (n for n in ast.walk(node) if isinstance(n, (ast.UnaryOp, ast.Constant)) and number(n) == value)
    found = next(numbers, None)
    return ast.get_source_segment("".join(file.lines), found) if found is not None else None


# ---------------------------------------------------------------- the surroundings of an expression


def function_around(file: ParsedFile, node: ast.AST) -> Function | ast.Module:
    """The innermost function, lambda or module that holds the node."""
    while node in file.parents:
        node = file.parents[node]
        if isinstance(node, Function):
            return node
    return file.tree


def default_of(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """The default of a function's argument; None where it has none."""
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    first = len(positional) - len(a.defaults)
    for number, parameter in enumerate(positional):
        if parameter.arg == name:
            return a.defaults[number - first] if number >= first else None
    return next((d for p, d in zip(a.kwonlyargs, a.kw_defaults) if p.arg == name), None)


def repeats(text: ProgramText, frame: Frame) -> bool:
    """Whether one call of the function that runs in a frame may run the frame's expression several times; True, too,
    where the text does not show it."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    if file is None or node is None:
        return True
    above: ast.AST | None = node
    while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        if isinstance(above, (ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.ListComp, ast.Lambda)):
            return True
        above = file.parents.get(above)
    return isinstance(above, ast.Module) or above is None


def assignments(file: ParsedFile, near: ast.AST, name: str) -> list[Assignment]:
    """The statements that assign a name or attribute, in the function around ``near``, else in the whole file."""
    inside = assignments_in(function_around(file, near), name)
    return inside or assignments_in(file.tree, name)


def assignments_in(scope: ast.AST, name: str) -> list[Assignment]:
    """The statements inside a node that assign a name or attribute a value, alone or with others."""
    return list(_assigned(scope).get(name, ()))


@lru_cache(maxsize=256)
def _assigned(scope: ast.AST) -> dict[str, list[Assignment]]:
    """All of them by name: they are asked for again and again."""
    found: dict[str, list[Assignment]] = {}
    for node in ast.walk(scope):
        if isinstance(node, Assignment) and node.value is not None:
            for name in filter(None, {dotted(t) for t in _targets(node)}):
                found.setdefault(name, []).append(node)
    return found


def given_to(assignment: Assignment, name: str) -> list[ast.expr | None]:
    """The values that a statement assigns to a name; None for one that is a part of another value."""
    given: list[ast.expr | None] = []
    for target in assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]:
        if dotted(target) == name:
            given.append(assignment.value)
        elif isinstance(target, ast.Tuple) and (names := [dotted(t) for t in target.elts]).count(name):
            parts = assignment.value.elts if isinstance(assignment.value, ast.Tuple) else []
            given.append(parts[names.index(name)] if len(parts) == len(names) else None)
    return given or [None]


def _targets(node: Assignment) -> list[ast.AST]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [t for target in targets for t in ast.walk(target) if isinstance(t, (ast.Name, ast.Attribute))]


def all_enclosing(text: ProgramText, frame: Frame, word: str) -> list[tuple[ast.stmt, ast.expr]]:
    """The ``with`` statements and decorated functions around the frame's line, the innermost first, each with its item
    or decorator that mentions a name."""
    file = text.parsed(frame.file)
    around = [
        (statement, expression)
        for statement in (file.surrounding if file is not None else ())
        if statement.lineno <= frame.line <= (statement.end_lineno or 0)
        for expression in reversed(_surrounds(statement))
        if word in ast.dump(expression)
    ]
    return sorted(around, key=lambda found: -found[0].lineno)


def _surrounds(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in statement.items]
    return statement.decorator_list if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
