"""How the program writes the operands of a call: in the call itself, in the user's calls further out, and where a
number came from.

Pure functions over a :class:`~dtypetrace.records.text.ProgramText`, like ``source.expressions``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import TypeGuard

from ..records import Frame, Place, Refused, Witness
from ..records.text import ParsedFile, ProgramText
from ..tables.attributes import of_tensors
from .expressions import (
    arguments,
    assignments,
    assignments_in,
    augmented,
    call_at,
    default_of,
    dotted,
    expression_at,
    function_around,
    given_to,
    last_part,
    own_call,
)
from .expressions import number as number_of

LONGEST = 32
"""Characters of an expression that is still short enough to be a name."""
_REFLECTED = frozenset("radd rsub rmul rdiv rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift".split())
"""Methods that Python calls on the right operand: ``1 - x`` is ``x.__rsub__(1)``."""


@dataclass(frozen=True, slots=True)
class CallOperand:
    """An operand of a call: where that is, its operation and module, and the operand's argument and number there."""

    place: Place
    op: str
    module: str
    argument: str
    index: int
    passed: tuple[str, int] = ("", -1)
    """The argument of a module's call by which it came in, if the op ran inside one (see :func:`passed_node`)."""

    @classmethod
    def of(cls, refused: Refused, site: Place, w: Witness) -> CallOperand:
        """An operand of a call that was refused at a place."""
        return cls(site, refused.op, refused.module, w.argument, w.index, (w.passed, w.position))

    def node(self, text: ProgramText) -> ast.expr | None:
        """The expression that the program writes for it."""
        frame = self.place.stack[0]
        if self.passed[0]:
            return passed_node(text, frame, *self.passed)
        return operand_node(text, frame, self.op, self.module, self.argument, self.index)


def argument(text: ProgramText, frame: Frame, op: str, module: str, name: str, index: int) -> str:
    """How the program writes one operand of the call that the frame was in (``q * turn``); empty where that is not
    plain.

    name and index are the operand's own in the signature of ``op``. For a module's call with one argument, such as
    ``self.proj(x)``, the argument is the ``input`` of the op that the module runs.
    """
    return plain(operand_node(text, frame, op, module, name, index))


def written_operands(text: ProgramText, frame: Frame) -> list[str]:
    """How the program writes the operands of the operator or call that the frame was in, where those are plain."""
    node = expression_at(text, frame)
    if isinstance(node, ast.BinOp):
        return [plain(node.left), plain(node.right)]
    return [plain(a) for a in arguments(node)] if isinstance(node, ast.Call) else []


def tensor_side(text: ProgramText, frame: Frame, op: str, made: Place) -> int | None:
    """Which operand of the operator that the frame was in is its only tensor, made at a place: of ``b2 * second`` the
    text does not say it (None), but the other one may be written as a number, or this one be made within the
    expression."""
    node, file = expression_at(text, frame), text.parsed(frame.file)
    if not isinstance(node, ast.BinOp) or file is None or op not in ("add", "mul"):
        return 0
    sides = (node.left, node.right)
    numbers = [_is_number(file, side) for side in sides]
    if any(numbers):
        return None if all(numbers) else numbers.index(False)
    inner = made.stack[0] if made.stack else None
    if inner is None or inner.file != frame.file or inner.column is None or inner.end_column is None:
        return None
    ends = (inner.line, inner.column), (inner.end_line or inner.line, inner.end_column)
    within = [all(file.contains(side, *end) for end in ends) for side in sides]
    return within.index(True) if any(within) else None


_NUMBERS = frozenset({"float", "int", "len", "item"})
"""Functions and methods that give numbers of Python's."""
_DEEPEST = 4
_MOST_GIVEN = 16


def _is_number(file: ParsedFile, node: ast.expr, deep: int = 0) -> bool:
    """Whether the text says that an expression is a number of Python's: it computes with such numbers alone, or with
    names that are only given them, as an argument that has one as its default."""
    if number_of(node) is not None:
        return True
    if isinstance(node, ast.BinOp):
        return _is_number(file, node.left, deep) and _is_number(file, node.right, deep)
    if isinstance(node, ast.Call):
        return (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in _NUMBERS
    name = dotted(node)
    if name is None or deep == _DEEPEST:
        return False
    function = function_around(file, node)
    passed_in = isinstance(function, ast.FunctionDef) and name in {
        getattr(a, "arg", "") for a in ast.walk(function.args)
    }
    assigned = assignments_in(function, name) if passed_in else assignments(file, node, name)
    given = [value for a in assigned for value in given_to(a, name)]
    given += [n.value for n in ast.walk(file.tree) if isinstance(n, ast.AugAssign) and dotted(n.target) == name]
    if not assigned and isinstance(function, ast.FunctionDef):
        given.append(default_of(function, name))
    return bool(given) and all(value is not None and _is_number(file, value, deep + 1) for value in given)


def passed(text: ProgramText, frame: Frame, name: str, position: int) -> str:
    """How the program writes an argument of the call that the frame was in; else the argument's own name."""
    item = "[" + name.partition("[")[2] if "[" in name else ""  # one of several that were passed as one
    written = plain(passed_node(text, frame, name, position))
    return written + item if written else name


def passed_node(text: ProgramText, frame: Frame, name: str, position: int) -> ast.expr | None:
    """The expression of an argument: by its position or, if that is -1, by its name."""
    call = call_at(text, frame)
    if call is None:
        return None
    if position < 0:
        return next((k.value for k in call.keywords if k.arg == name.partition("[")[0]), None)
    return _positional(call.args, position)


def _positional(given: list[ast.expr], position: int) -> ast.expr | None:
    """An argument by its number; None after one with a star, which may be several arguments."""
    before = given[: position + 1]
    return before[-1] if len(before) > position and not any(isinstance(a, ast.Starred) for a in before) else None


def plain(node: ast.AST | None) -> str:
    """An expression's text; empty where it is not a name for a tensor or is long. Of a long call, its ends:
    ``scores[...].softmax(-1)``; of a long product, only what is short: ``x / (...)``."""
    if node is None or isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.Starred)):
        return ""
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and len(text) > LONGEST:
        name = dotted(node.func)
        given = ", ".join(map(ast.unparse, (*node.args, *node.keywords)))
        if name:
            text = f"{name}(...)"
        elif isinstance(node.func, ast.Attribute):
            end = f".{node.func.attr}({given})"
            begin = _outline(node.func.value)
            text = f"{begin if len(begin + end) <= LONGEST else '(...)'}{end}"
    if isinstance(node, ast.BinOp) and len(text) > LONGEST:
        kept = ast.BinOp(_shortened(node.left), node.op, _shortened(node.right))
        text = ast.unparse(kept).replace("...", "(...)") if kept.left is node.left or kept.right is node.right else ""
    return text if len(text) <= LONGEST and "\n" not in text else ""


def _outline(node: ast.expr) -> str:
    """How an expression begins: ``sigmas[...]``, ``self.mix(...)``; dots where that is no name."""
    if isinstance(node, (ast.Subscript, ast.Call)):
        begins = _outline(node.value if isinstance(node, ast.Subscript) else node.func)
        return f"{begins}{'[...]' if isinstance(node, ast.Subscript) else '(...)'}" if begins != "(...)" else begins
    if isinstance(node, ast.Attribute) and not dotted(node):
        return f"{_outline(node.value)}.{node.attr}"
    return dotted(node) or "(...)"


def _shortened(node: ast.expr) -> ast.expr:
    """A side of an operator, or dots where it is no short name."""
    return node if dotted(node) and len(ast.unparse(node)) <= LONGEST // 2 else ast.Constant(...)


# ---------------------------------------------------------------- the operand of an op


def operand_node(text: ProgramText, frame: Frame, op: str, module: str, name: str, index: int) -> ast.expr | None:
    """The expression of one operand of the call that the frame was in; see :func:`argument`."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    if node is None or file is None:
        return None
    statement = file.parents.get(node)
    if (changed := augmented(text, frame)) is not None:
        return (changed.target, changed.value)[index] if index < 2 else None
    if isinstance(statement, ast.Assign) and node in statement.targets:  # x.grad = value, x[index] = value
        parts = {"value": statement.value, "self": getattr(node, "value", None)}
        return _index(node, name) if name.startswith("index") else parts.get(name)
    if isinstance(node, ast.BinOp):
        sides = (node.right, node.left) if op in _REFLECTED else (node.left, node.right)
        return sides[index] if index < 2 else None
    if isinstance(node, ast.UnaryOp):
        return node.operand if index == 0 else None
    if isinstance(node, (ast.Subscript, ast.Attribute)):  # x[:, None], x.mT
        return node.value if index == 0 else _index(node, name)
    return _of_call(file, node, op, module, name, index) if isinstance(node, ast.Call) else None


def _index(node: ast.expr, name: str) -> ast.expr | None:
    """What stands between the brackets of a subscript, or one of several that do, by its name (``index[1]``)."""
    given = node.slice if isinstance(node, ast.Subscript) else None
    listed = given.elts if isinstance(given, (ast.Tuple, ast.List)) else []
    number = name.removeprefix("index[").removesuffix("]")
    if name == "index":
        return given
    return _positional(listed, int(number)) if number.isdecimal() else None


def _of_call(file: ParsedFile, call: ast.Call, op: str, module: str, name: str, index: int) -> ast.expr | None:
    """The operand of a call by its name, else by its number."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if module and (module == dotted(call.func) or module.rpartition(".")[2] == called):
        return _positional(call.args, 0) if index == 0 and len(call.args) == 1 else None
    of_torch = owner is not None and (dotted(owner) or "").split(".")[0] in torch_names(file.tree)
    if called != op and not (of_torch and op.endswith(f"_{called}")):
        return None
    by_name = next((k.value for k in call.keywords if k.arg == name), None)
    if by_name is not None:
        return by_name
    given = call.args if owner is None or of_torch else [owner, *call.args]
    if op == "where" and given is not call.args and name == "condition":  # x.where(condition, other)
        return _positional(call.args, 0)
    if op == "where" and given is not call.args and name == "input":
        return owner
    if name.endswith("]"):
        return _item(given, op, name)
    weights = [a for a in given if name in ("weight", "bias") and last_part(a) == name]
    return weights[0] if len(weights) == 1 else _by_number(given, op, index)


def _item(given: list[ast.expr], op: str, name: str) -> ast.expr | None:
    """One tensor of a list (``tensors[2]``). The list is the first argument; for ``einsum``, it is the rest of them.
    Of functions on several lists, the whole list."""
    if op.startswith("_foreach_"):
        return _positional(given, _LISTS.get(name.partition("[")[0], 1))
    first = given[0] if given else None
    listed = first.elts if isinstance(first, (ast.List, ast.Tuple)) else None
    items = listed if listed is not None else given[1:] if op == "einsum" else given
    number = name.partition("[")[2][:-1]
    if not number.isdecimal() or int(number) >= len(items):
        return None
    return None if any(isinstance(i, (ast.Starred, ast.List)) for i in items) else items[int(number)]


_LISTS = {"self": 0, "input": 0, "tensors2": 2, "weights": 2}
"""The positions of lists of tensors, by their names in schemas; others are the second argument."""


def _by_number(given: list[ast.expr], op: str, index: int) -> ast.expr | None:
    """An operand by its number; None where a list before it (a norm's shape) would shift the numbers."""
    found = _positional(given, index)
    moved = any(isinstance(a, (ast.List, ast.Tuple)) for a in given[: index + 1]) or index and "norm" in op
    return None if moved else found


@lru_cache(maxsize=64)
def torch_names(tree: ast.Module) -> frozenset[str]:
    """The names under which a file imports torch and its modules (``import torch as th``)."""
    found = {"torch", "F", "nn"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {a.asname for a in node.names if a.asname and f"{of}{a.name}".split(".")[0] == "torch"}
    return frozenset(found)


# ---------------------------------------------------------------- the same value in the calls further out


def passed_on(text: ProgramText, place: Place, module: str, node: ast.AST | None, made: Place) -> ast.expr | None:
    """The expression in the user's own call that a library passed on, under its own names, to an operand's place.

    node is the operand in the innermost frame, made is where the operand was made. None where a function in between
    assigned another value to its argument, or where it is unclear from the call which argument is which.
    """
    makers = {(frame.file, frame.function) for frame in made.stack}
    for frame, caller in zip(place.stack, place.stack[1:]):
        # an assignment in a function that made the value may be the value's birth
        reassigned_here = not makers or (frame.file, frame.function) in makers
        given = _given_by_caller(text, frame, caller, module, node, may_reassign=not reassigned_here)
        if caller.user or given is None:
            return given
        node = given
    return None


def callers(
    text: ProgramText, place: Place, node: ast.AST | None, module: str, *, may_reassign: bool = False
) -> Iterator[tuple[Place, ast.expr]]:
    """The expressions in the user's calls further out that were passed on, under other names, to an operand, the
    nearest first, each with its place; node is the operand in the innermost frame. ``may_reassign``: a function may
    have computed with what it was given before it passed that on under its name."""
    for level, (frame, caller) in enumerate(zip(place.stack, place.stack[1:]), 1):
        node = _given_by_caller(text, frame, caller, module, node, may_reassign=may_reassign)
        if node is None:
            return
        if caller.user:
            yield Place(place.stack[level:]), node


def _given_by_caller(
    text: ProgramText, frame: Frame, caller: Frame, module: str, node: ast.AST | None, *, may_reassign: bool
) -> ast.expr | None:
    """The expression that the caller passed for a name of the frame's function, if that name is an argument."""
    file = text.parsed(frame.file)
    if not isinstance(node, ast.Name) or file is None:
        return None
    function = function_around(file, node)
    if not isinstance(function, ast.FunctionDef) or not may_reassign and assignments_in(function, node.id):
        return None
    method = isinstance(file.parents.get(function), ast.ClassDef)
    return _given(function, method, node.id, call_at(text, caller), module)


def _given(function: ast.FunctionDef, method: bool, name: str, call: ast.Call | None, module: str) -> ast.expr | None:
    """The expression that a call passes for a function's argument. A module's call runs its ``forward``."""
    called = (dotted(call.func) or "").rpartition(".")[2] if call is not None else ""
    of_module = function.name == "forward" and called in module.split(".")
    if call is None or not called or called != function.name and not of_module:
        return None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][method:]
    first = dict(zip(names, takewhile(lambda a: not isinstance(a, ast.Starred), call.args)))
    given: dict[str | None, ast.expr] = {k.arg: k.value for k in call.keywords}
    by_name = not any(isinstance(a, ast.Starred) for a in call.args) and None not in given
    known = first.get(name) or (given.get(name) if by_name else None)
    return known if len(call.args) <= len(names) else None


# ---------------------------------------------------------------- where a number was written


def scalar_place(text: ProgramText, site: Place, value: str) -> Place:
    """Where a Python number was written: in the call itself, or in the assignment to the name that the call uses."""
    for index, frame in enumerate(site.stack):
        call, file = call_at(text, frame), text.parsed(frame.file)
        if call is not None and file is not None:
            names = (name for a in arguments(call) if (name := dotted(a)))
            for name in names:
                for node in assignments(file, call, name):
                    if node.value is not None and number_of(node.value) == value:
                        return Place((located(file, frame, node.value), *site.stack[index + 1 :]))
        if call is not None and frame.user:
            break
    return site


def names_limit(text: ProgramText, frame: Frame, limit: float) -> bool:
    """Whether the expression that the frame was running, or what its names were given, has a number that is a format's
    largest, or asks ``finfo`` for one."""
    file, node = text.parsed(frame.file), augmented(text, frame) or expression_at(text, frame)
    waiting, seen = [node] if file is not None and node is not None else [], set[ast.AST]()
    while waiting and file is not None and len(seen) < _MOST_GIVEN:
        seen.add(given := waiting.pop())
        for part in ast.walk(given):
            if number_of(part) in (repr(limit), repr(-limit), repr(int(limit)), repr(-int(limit))):
                return True
            if isinstance(part, ast.Attribute) and "finfo" in (dotted(getattr(part.value, "func", part)) or ""):
                return True
            name = dotted(part)
            found = [v for a in assignments(file, part, name) for v in given_to(a, name)] if name else []
            waiting += [value for value in found if value is not None and value not in seen]
    return False


def converted(text: ProgramText, site: Place) -> tuple[str, Place]:
    """The name of the value that a call converts, and where that name was assigned; else no name, and the call's
    place."""
    frame = site.stack[0] if site.stack else None
    call, file = (call_at(text, frame), text.parsed(frame.file)) if frame else (None, None)
    if frame is None or call is None or file is None:
        return "", site
    for name in (name for a in arguments(call) if (name := dotted(a))):
        before = [n.value for n in assignments(file, call, name) if n.lineno < frame.line and n.value is not None]
        if before:
            return name, Place((located(file, frame, before[-1]), *site.stack[1:]))
    return "", site


def located(file: ParsedFile, frame: Frame, node: ast.expr) -> Frame:
    """The frame, as if it were running another expression of its file."""
    begin, end = file.start(node), file.end(node)
    return Frame(frame.file, begin[0], frame.function, frame.user, begin[1], *end)


def taken_out(text: ProgramText, place: Place) -> Frame | None:
    """Where the program takes a tensor out of what a call of its own gave it: ``batch.input_features``,
    ``batch["mel"]``; None where it uses that in another way, too."""
    own, frame = own_call(text, place), place.user_frame
    statement = own[0].parents.get(own[1]) if own is not None else None
    if own is None or frame is None or not isinstance(statement, ast.Assign):
        return None
    file, given = own[0], statement.targets[0]
    scope = function_around(file, statement)
    if not isinstance(given, ast.Name) or len(assignments_in(scope, given.id)) > 1:
        return None
    names = (n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == given.id and n is not given)
    used = [file.parents[n] for n in names]
    return located(file, frame, used[0]) if len(used) == 1 and _takes(used[0], file) else None


def _takes(node: ast.AST, file: ParsedFile) -> TypeGuard[ast.expr]:
    """Whether an expression takes something by its name out of an object that is no tensor."""
    if isinstance(node, ast.Subscript):
        return isinstance(getattr(node.slice, "value", None), str)
    called = isinstance(above := file.parents.get(node), ast.Call) and above.func is node
    return isinstance(node, ast.Attribute) and not of_tensors(node.attr) and not called


def taken_in_turn(text: ProgramText, frame: Frame, name: str) -> list[str]:
    """What a name stands for at a line in a loop over a tuple or a list that is written out: ``a`` and ``b`` for the
    ``x`` of ``for x, n in ((a, 1), (b, 2))``."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    if file is None or node is None:
        return []
    for loop in ast.walk(function_around(file, node)):
        if not isinstance(loop, (ast.For, ast.comprehension)) or not isinstance(loop.iter, (ast.Tuple, ast.List)):
            continue
        parts = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        at = next((n for n, part in enumerate(parts) if isinstance(part, ast.Name) and part.id == name), -1)
        if at >= 0 and parts[0] is not loop.target:
            rows = [row.elts for row in loop.iter.elts if isinstance(row, (ast.Tuple, ast.List))]
            return [ast.unparse(row[at]) for row in rows if len(row) == len(parts)]
        if at >= 0:
            return [ast.unparse(entry) for entry in loop.iter.elts]
    return []
