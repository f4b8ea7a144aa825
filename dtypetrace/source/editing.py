"""Source edits that change a dtype where it was decided. Text only: nothing here runs or writes anything.

A cast is written by ``_append_cast`` and ``cast_text``, another ``dtype=`` by ``_in_factory_call`` and
``_change_cast``. Each edit replaces one expression of the user's file and leaves everything around it unchanged. Where
the recording has no text for a place, or the right change does not follow from the text, there is no edit.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..records import (
    CAST,
    LARGEST,
    LOWEST,
    NAMED,
    RECAST,
    SPARED,
    UNCAST,
    Change,
    Edit,
    Frame,
    Place,
    Recording,
    Witness,
)
from ..records.text import ParsedFile
from ..tables.dtypes import FLOATING, wider
from ..tables.operators import CAST_METHODS, is_destination, is_move, tagged
from . import arrays, copies, decisions, dtype_names, expressions, operands
from .operands import CallOperand

_NO_VALUES = (ast.Constant, ast.List, ast.Tuple, ast.Starred)
"""Expressions that are not tensors, so no cast can follow them."""


_ONLY_READS = (ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.expr_context)
"""What an expression consists of that may run twice: it only reads a variable or a part of it."""

_DECIDED = "cast", "factory", "conversion", "parameter", "load"
"""Kinds of origins for which a call of a library may name the dtype."""


class Spot(NamedTuple):
    """An expression of the program that was running: its frame, its file, its node."""

    frame: Frame
    file: ParsedFile
    node: ast.expr


def spot_at(recording: Recording, place: Place, *, own: bool = True) -> Spot | None:
    """The expression that runs at a place; ``own``: None unless that is the user's own line."""
    frame = place.stack[0] if place.stack else None
    if frame is None or own and not frame.user:
        return None
    file, node = recording.text.parsed(frame.file), expressions.expression_at(recording.text, frame)
    return Spot(frame, file, node) if file is not None and node is not None else None


# ---------------------------------------------------------------- where a dtype was decided


def at_birth(recording: Recording, kind: str, place: Place, wanted: str) -> Edit | None:
    """The edit that gives a tensor the wanted dtype where its dtype was born, None where there is no safe one.

    kind is the origin's. Where a library's line decided it, the user's own call names the dtype, by keyword.
    """
    spot = spot_at(recording, place)
    if spot is None:
        return dtype_keyword(recording, from_user(place), wanted) if kind in _DECIDED else None
    if kind == "conversion" and decisions.spelled(spot.node):  # NumPy's literal
        return _named(recording, place, spot, spot.node, wanted) if arrays.may_change(spot.file, spot.node) else None
    if kind in ("promotion", "autocast", "trained", "computed") or arrays.reads_memory(spot.node):
        return _cast(recording, spot, spot.node, wanted)
    statement = spot.file.parents.get(spot.node)
    if isinstance(statement, ast.Assign) and spot.node in statement.targets:  # weight.data = average
        return _cast(recording, spot, statement.value, wanted)
    if not isinstance(spot.node, ast.Call):
        return None
    if kind in ("factory", "conversion", "worker", "parameter"):
        return _in_factory_call(recording, place, spot, spot.node, wanted, method_only=kind == "parameter")
    edit = _change_cast(recording, place, spot, spot.node, wanted) if kind == "cast" else None
    shared = not copies.in_its_slot(spot.file, spot.node) and copies.would_share(recording, place, wanted)
    if edit is not None and shared:
        return copies.as_copy(spot.file, spot.node, edit)
    return edit


def at_widening(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts a result back to the wanted dtype, in the expression that widened it."""
    return at_birth(recording, "promotion", place, wanted)


def where_complete(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts a result in the expression that computed it, or the whole ``a if c else b`` that it is
    a branch of."""
    spot = spot_at(recording, place)
    if spot is None:
        return None
    node, above = spot.node, spot.file.parents.get(spot.node)
    while isinstance(above, ast.IfExp) and node is not above.test and not _is_constant(above, node):
        node, above = above, spot.file.parents.get(above)
    return _cast(recording, spot, node, wanted)


def _is_constant(choice: ast.IfExp, branch: ast.expr) -> bool:
    """Whether the other branch of a choice is a constant, such as None."""
    return isinstance(choice.orelse if branch is choice.body else choice.body, ast.Constant)


def at_results(recording: Recording, ops: Sequence[int], wanted: str, written: str = "") -> tuple[Edit, ...]:
    """The edits that cast the results of ops in their expressions; none where one of them cannot be edited: inside a
    call such as ``model(x)``, whose result later ops make.

    ``written``: the dtype as the program writes it there, such as ``x.dtype``.
    """
    for op in recording.ops:
        inner = (i.producer for i in op.inputs if i.producer in ops)
        if not is_move(op) and any(recording.ops[n].place == op.place for n in inner):
            return ()
    places = [recording.places[recording.ops[n].place] for n in ops if recording.ops[n].place >= 0]
    edits = [_at_result(recording, place, wanted, written) for place in places]
    found = tuple(dict.fromkeys(edit for edit in edits if edit is not None))
    return found if None not in edits else ()


def _at_result(recording: Recording, place: Place, wanted: str, written: str) -> Edit | None:
    spot = spot_at(recording, place)
    if spot is None:
        return None
    return _cast(recording, spot, spot.node, wanted, written)


def of_cast(recording: Recording, place: Place, wanted: str) -> tuple[Edit, str] | None:
    """The edit by which ``x.to(dtype)`` casts to the wanted dtype, also where a variable names the other one, which
    keeps its value; and how that one is written."""
    spot = spot_at(recording, place)
    call = spot.node if spot is not None else None
    named = expressions.dtype_argument(call) if isinstance(call, ast.Call) else None
    if spot is None or call is None or named is None or not torch_name(spot.file):
        return None
    file = spot.file
    before, after = file.between(file.start(call), file.start(named)), file.between(file.end(named), file.end(call))
    text = f"{before}{torch_name(file)}.{wanted}{after}"
    return spot.file.replaced(call, text, Change(RECAST, wanted)), file.segment(named)


def at_own_line(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts what the user's nearest own line gets from a library; that may also be a module."""
    return at_birth(recording, "promotion", from_user(place), wanted)


def names_variable(recording: Recording, place: Place) -> bool:
    """Whether a cast takes its dtype from a variable, which may be a setting of the whole program."""
    spot = spot_at(recording, place)
    named = expressions.dtype_argument(spot.node) if spot is not None and isinstance(spot.node, ast.Call) else None
    return named is not None and not decisions.spelled(named)


def uncast(recording: Recording, place: Place) -> Edit | None:
    """The edit that removes a method's cast and keeps what was cast: ``x.float()`` becomes ``x``, and
    ``x.to(device, dtype)`` becomes ``x.to(device)``. A statement for which nothing is left to do is removed."""
    spot = spot_at(recording, place)
    if spot is None or not isinstance(spot.node, ast.Call) or not isinstance(spot.node.func, ast.Attribute):
        return None
    name, given = spot.node.func.attr, expressions.arguments(spot.node)
    if name == "to" and len(given) > 1:
        return _without_dtype(spot, spot.node)
    if name in CAST_METHODS and not given or name == "to" and given:
        kept = _owner(spot.file, spot.node, name).rstrip().removesuffix(".")
        if not copies.in_its_slot(spot.file, spot.node) and copies.would_share(recording, place):
            return spot.file.replaced(spot.node, f"{kept}.clone()", Change(UNCAST))
        statement = spot.file.parents.get(spot.node)
        if isinstance(statement, ast.Assign) and [spot.file.segment(t) for t in statement.targets] == [kept]:
            return _removed(spot, statement)
        if isinstance(statement, ast.Expr):
            return _removed(spot, statement)
        return spot.file.replaced(spot.node, kept, Change(UNCAST))
    return None


def spared(recording: Recording, place: Place) -> Edit | None:
    """The edit by which a cast of any tensor leaves those alone that are not floating: ``x.to(dtype)`` becomes
    ``x.to(dtype) if x.is_floating_point() else x``."""
    spot = spot_at(recording, place)
    call = spot.node if spot is not None else None
    if spot is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    owner, text = expressions.dotted(call.func.value), spot.file.segment(call)
    above = spot.file.parents.get(call)
    alone = isinstance(above, (ast.DictComp, ast.ListComp, ast.GeneratorExp, ast.Lambda, ast.Return, ast.Assign))
    if isinstance(above, ast.IfExp) and above.body is call and spot.file.segment(above.orelse) == owner:
        test = spot.file.segment(above.test)
        return spot.file.replaced(above.test, f"{test} and {owner}.is_floating_point()", Change(SPARED))
    if not owner or not alone:
        return None
    return spot.file.replaced(call, f"{text} if {owner}.is_floating_point() else {owner}", Change(SPARED))


def _without_dtype(spot: Spot, call: ast.Call) -> Edit | None:
    """The edit that leaves the dtype out of ``x.to(device, dtype)``; None where it is unclear which argument it is."""
    named = expressions.dtype_argument(call)
    if named is None or named not in expressions.arguments(call):
        return None
    left = [spot.file.segment(a) for a in call.args if a is not named]
    left += [spot.file.segment(k) for k in call.keywords if k.value is not named]
    called = spot.file.between(spot.file.start(call), spot.file.end(call.func))
    return spot.file.replaced(call, f"{called}({', '.join(left)})", Change(UNCAST))


def _removed(spot: Spot, statement: ast.stmt) -> Edit:
    """The edit that removes a cast's statement with its lines; ``pass`` takes its place where a block needs one."""
    start, end = spot.file.start(statement), spot.file.end(statement)
    first, behind = spot.file.lines[start[0] - 1], spot.file.lines[end[0] - 1][end[1] - 1 :].strip()
    block = next((b for b in _blocks(spot.file.parents.get(statement)) if statement in b), [])
    alone = not first[: start[1] - 1].strip() and (not behind or behind.startswith("#"))
    if len(block) < 2 or not alone or end[0] >= len(spot.file.lines):
        return spot.file.replaced(statement, "pass", Change(UNCAST))
    lines = "".join(spot.file.lines[start[0] - 1 : end[0]])
    return Edit(spot.frame.file, (start[0], 1), (end[0] + 1, 1), lines, "", Change(UNCAST))


def _blocks(node: ast.AST | None) -> Iterator[list[ast.stmt]]:
    return (getattr(node, name, []) for name in ("body", "orelse", "finalbody"))


def under(recording: Recording, frame: Frame, region: str) -> Edit | None:
    """The edit that puts the simple statement in which a frame is into a ``with`` of its own, on the same line."""
    file, node = recording.text.parsed(frame.file), expressions.expression_at(recording.text, frame)
    statement: ast.AST | None = node
    while file is not None and isinstance(statement, ast.expr):
        statement = file.parents.get(statement)
    if file is None or not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)):
        return None
    (line, column), text = file.start(statement), file.segment(statement)
    if file.lines[line - 1][: column - 1].strip() or not torch_name(file):
        return None
    word = text[: len(text) - len(text.lstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"))] or text[:1]
    return Edit(frame.file, (line, column), (line, column + len(word)), word, f"with {region}: {word}")


def dtype_keyword(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that changes the dtype that a call names by keyword."""
    spot = spot_at(recording, place)
    named = expressions.dtype_keyword(recording.text, spot.frame) if spot is not None else None
    return _named(recording, place, spot, named, wanted) if spot is not None and named is not None else None


def scalar(recording: Recording, place: Place, value: str, dtype: str) -> Edit | None:
    """The edit that replaces a number that ``dtype`` cannot hold by that dtype's limit, read from the call's own tensor
    where its text is more than a call."""
    spot = spot_at(recording, place)
    torch = torch_name(spot.file) if spot is not None else ""
    if spot is None or not torch or not isinstance(spot.node, ast.Call):
        return None
    given = spot.node.func.value if isinstance(spot.node.func, ast.Attribute) else None
    reads = given is not None and all(isinstance(n, _ONLY_READS) for n in ast.walk(given))
    owner = spot.file.segment(given) if given is not None and reads else ""
    like = owner if owner.split(".")[0] not in operands.torch_names(spot.file.tree) else ""
    for argument in expressions.arguments(spot.node):
        if (like or dtype) and value in (expressions.number(argument), spot.file.segment(argument)):
            limit, target = _limit(value, dtype, f"{like}.dtype" if like else f"{torch}.{dtype}")
            return spot.file.replaced(argument, f"{torch}.{limit}", Change(target, "" if like else dtype, like))
    return None


def constant(recording: Recording, taken: CallOperand, value: str, dtype: str) -> Edit | None:
    """The edit that writes a dtype's limit in the place of a constant which is only ever one number: ``self.FILL``.

    None for what may hold another number, such as an argument that callers give.
    """
    spot, node = spot_at(recording, taken.place), taken.node(recording.text)
    torch = torch_name(spot.file) if spot is not None else ""
    if spot is None or not torch or not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    name = expressions.last_part(node)
    given = any(isinstance(n, ast.arg) and n.arg == name for n in ast.walk(spot.file.tree))
    bound = [a for written in (name, f"self.{name}") for a in expressions.assignments_in(spot.file.tree, written)]
    held = bound[0].value if len(bound) == 1 and not given else None
    if held is None or value not in (expressions.number(held), spot.file.segment(held)):
        return None
    limit, target = _limit(value, dtype, f"{torch}.{dtype}")
    return spot.file.replaced(node, f"{torch}.{limit}", Change(target, dtype))


def _limit(value: str, dtype: str, written: str) -> tuple[str, str]:
    """What stands for a number that does not fit into a dtype, which the text writes so, and what a replay calls it."""
    side, target = ("min", LOWEST) if value.startswith("-") else ("max", LARGEST)
    return f"{'iinfo' if 'int' in dtype else 'finfo'}({written}).{side}", target


# ---------------------------------------------------------------- where a value is used


def at_call(recording: Recording, taken: CallOperand, wanted: str) -> Edit | None:
    """The edit that casts an operand in the call that refused it. None for a destination: the call would write into the
    cast copy, and the original would not change."""
    spot = spot_at(recording, taken.place)
    if spot is None or _is_written(taken) or "[" in taken.passed[0]:
        return None
    operand = taken.node(recording.text)
    if operand is None or isinstance(operand, _NO_VALUES):
        return None
    return _cast(recording, spot, operand, wanted)


def at_arguments(recording: Recording, place: Place, names: Collection[str], had: str, wanted: str) -> tuple[Edit, ...]:
    """The edits that cast the arguments of the call at a place that have a dtype: tensors of these names, and what an
    op made in the call itself."""
    spot = spot_at(recording, place)
    if spot is None or not isinstance(spot.node, ast.Call):
        return ()
    places = (recording.places[op.place] for op in recording.ops if op.place >= 0 and op.outputs[:1] == (had,))
    frames = (frame for op in places for frame in op.stack[:1])
    made = {(f.file, f.line, f.column, f.end_line, f.end_column) for f in frames}
    edits = (
        _cast(recording, spot, node, wanted)
        for node in expressions.arguments(spot.node)
        if expressions.dotted(node) in names or (spot.file.path, *spot.file.start(node), *spot.file.end(node)) in made
    )
    return tuple(edit for edit in edits if edit is not None)


def _is_written(taken: CallOperand) -> bool:
    return is_destination(taken.op, taken.argument, taken.index)


def at_call_like(recording: Recording, taken: CallOperand, other: Witness, *, several: bool = False) -> Edit | None:
    """The edit that casts an operand to the dtype of another operand of the same call, whichever dtype that is: for a
    line that runs in two dtypes. None where the other one has no name of its own there. ``several``: the line did."""
    spot = spot_at(recording, taken.place)
    if spot is None or _is_written(taken):
        return None
    operand = taken.node(recording.text)
    like = CallOperand(taken.place, taken.op, taken.module, other.argument, other.index).node(recording.text)
    name = expressions.dotted(like) if like is not None else _weight_of(spot.node, taken.module, other.name, several)
    if operand is None or not name or isinstance(operand, _NO_VALUES):
        return None
    return _cast(recording, spot, operand, other.dtype, f"{name}.dtype")


def _weight_of(node: ast.expr, module: str, name: str, inside: bool) -> str:
    """The weight of the module that is called, as the program would write it: ``self.proj.weight``.

    ``inside``: also of a sequence that begins with that module, ``next(self.layers.parameters())``.
    """
    called = (expressions.dotted(node.func) or "") if isinstance(node, ast.Call) else ""
    if not called or name.rpartition(".")[2] != "weight":
        return ""
    path, last = module.split("."), called.rpartition(".")[2]
    while inside and path[-1] == "0" and len(path) > 1 and path[-1] != last:
        path.pop()
    if path[-1] != last:
        return ""
    return f"{called}.weight" if module.endswith(last) else f"next({called}.parameters())"


def like_the_callee(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts the one argument of a call to the dtype that the weights of the object which is called have
    then: ``vae.decode(x.to(next(vae.parameters()).dtype))``."""
    spot = spot_at(recording, place)
    if spot is None or not isinstance(spot.node, ast.Call) or not spot.node.args:
        return None
    func, argument = spot.node.func, spot.node.args[0]
    owner = expressions.dotted(
        func.value if isinstance(func, ast.Attribute) and "." in spot.file.segment(func) else func
    )
    if not owner or isinstance(argument, (*_NO_VALUES, ast.Starred)):
        return None
    return _cast(recording, spot, argument, wanted, f"next({owner}.parameters()).dtype")


def at_callers(
    recording: Recording,
    taken: CallOperand,
    wanted: str,
    held: Iterable[tuple[int, str]] = (),
    may_reassign: bool = False,
) -> Iterator[tuple[Place, Edit]]:
    """The edits that cast an operand further out, in each of the user's own calls that passed it on: for a refused call
    on a line that other models run too. held: the callers' variables that were the operand, with their frames;
    ``may_reassign``: or what it was computed from under the same name."""
    if not taken.place.stack or _is_written(taken):
        return
    operand = taken.node(recording.text)
    passed = dict(operands.callers(recording.text, taken.place, operand, taken.module, may_reassign=may_reassign))
    for level, name in held:
        outer = Place(taken.place.stack[level:])
        own = bool(outer.stack) and outer.stack[0].user
        call = expressions.call_at(recording.text, outer.stack[0]) if own else None
        written = (a for a in expressions.arguments(call) if expressions.dotted(a) == name) if call is not None else ()
        for node in written:
            passed.setdefault(outer, node)
    for outer, node in sorted(passed.items(), key=lambda found: -len(found[0].stack)):
        file = recording.text.parsed(outer.stack[0].file)
        if file is not None and not isinstance(node, (ast.Constant, ast.List, ast.Tuple)):
            edit = _cast(recording, Spot(outer.stack[0], file, node), node, wanted)
            if edit is not None:
                yield outer, edit


def back_in_fallback(recording: Recording, place: Place, operand: str, dtype: str) -> Edit | None:
    """The edit that casts the result of a call back to the dtype that an operand had. None for several results, for one
    that becomes a Python number, and where nothing uses it."""
    spot = spot_at(recording, place)
    parent = spot.file.parents.get(spot.node) if spot is not None else None
    if spot is None or not isinstance(spot.node, ast.Call) or _takes_several(parent) or _makes_number(parent):
        return None
    named = f"{operand}.dtype" if operand.isidentifier() else ""
    return _append_cast(spot, spot.node, _to(spot, named, dtype), _change(CAST, dtype, named))


def _takes_several(node: ast.AST | None) -> bool:
    """Whether a call's results are taken apart: by an attribute, one number, or an assignment to several names."""
    unpacked = isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List))
    numbered = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return unpacked or numbered or isinstance(node, ast.Attribute)


def _makes_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("bool", "float", "int")


def at_return(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts what a function returns, in the ``return`` statement at a place."""
    spot = spot_at(recording, place)
    statement: ast.AST | None = spot.node if spot is not None else None
    while spot is not None and isinstance(statement, ast.expr):
        statement = spot.file.parents.get(statement)
    if spot is None or not isinstance(statement, ast.Return) or isinstance(statement.value, (ast.Tuple, type(None))):
        return None
    return _cast(recording, spot, statement.value, wanted)


def back_at_return(recording: Recording, place: Place) -> tuple[Frame, Edit] | None:
    """The edit that casts what a function returns back to the dtype of its own argument, which the expression at a
    place cast, and the line of the ``return``: as ``return out.type_as(x)`` does. None where the function has several
    returns, gives no single tensor, or has changed the argument by then."""
    spot = spot_at(recording, place)
    call = spot.node if spot is not None else None
    if spot is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    function, argument = expressions.function_around(spot.file, call), call.func.value
    while isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute) and argument.func.attr in _SAME:
        argument = argument.func.value
    if not isinstance(function, ast.FunctionDef) or not isinstance(argument, ast.Name):
        return None
    taken = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
    if argument.id not in taken or expressions.assignments_in(function, argument.id) or len(returns) != 1:
        return None
    value = returns[0].value
    named = isinstance(value, ast.Name) and not _used_and_returned(function, call, value.id)
    if value is None or named or isinstance(value, ast.Tuple):
        return None
    if expressions.function_around(spot.file, value) is not function:
        return None
    edit = _append_cast(spot, value, f".to({argument.id}.dtype)", Change(CAST, like=argument.id))
    begin, end = spot.file.start(value), spot.file.end(value)
    line = Frame(spot.frame.file, begin[0], spot.frame.function, True, begin[1], *end)
    return (line, edit) if edit is not None else None


_SAME = frozenset({"detach", "clone", "contiguous"})
"""Methods whose result has the dtype of their tensor."""


def _used_and_returned(function: ast.FunctionDef, call: ast.Call, name: str) -> bool:
    """Whether a name holds only what a call gave, and is used before it is returned: the wide value had a purpose."""
    bound = expressions.assignments_in(function, name)
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    return len(bound) == 1 and bound[0].value is call and len(uses) > 1


def back_beside(recording: Recording, place: Place, operand: str, dtype: str) -> Edit | None:
    """The edit that casts what a function returns back to the narrow dtype of a call's operand, where it adds the
    result of that call, computed in a wider dtype, to what it was given: ``return x + self.up(self.down(x))``.

    None where the function has several returns, where what it returns is no such sum or product, and where it widens
    the other side itself.
    """
    spot = spot_at(recording, place)
    function = expressions.function_around(spot.file, spot.node) if spot is not None else None
    if spot is None or not isinstance(function, ast.FunctionDef):
        return None
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
    value = returns[0].value if len(returns) == 1 else None
    if not isinstance(value, ast.BinOp):
        return None
    wide, given = _made_from(function, spot.node), {a.arg for a in function.args.args} - {"self"}
    inside = [list(ast.walk(side)) for side in _terms(value)]
    names = [{n.id for n in nodes if isinstance(n, ast.Name)} for nodes in inside]
    made = [spot.node in nodes or bool(wide & known) for nodes, known in zip(inside, names)]
    beside = [nodes for nodes, known, is_made in zip(inside, names, made) if given & known and not is_made]
    if (
        not any(made)
        or not beside
        or any(isinstance(n, ast.Attribute) and n.attr in CAST_METHODS for n in sum(beside, []))
    ):
        return None
    own = operand in given and not expressions.assignments_in(function, operand)
    named = f"{operand}.dtype" if own else ""
    return _append_cast(spot, value, _to(spot, named, dtype), _change(CAST, dtype, named))


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    """The operands of an arithmetic expression, and those of the operands that are such expressions."""
    if isinstance(value, ast.BinOp):
        yield from (*_terms(value.left), *_terms(value.right))
    else:
        yield value


def _made_from(function: ast.FunctionDef, node: ast.expr) -> set[str]:
    """The names that a function's plain assignments give what they compute from an expression."""
    names: set[str] = set()
    for statement in function.body:
        if isinstance(statement, (ast.Assign, ast.AugAssign)) and any(
            n is node or isinstance(n, ast.Name) and n.id in names for n in ast.walk(statement.value)
        ):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return names


# ---------------------------------------------------------------- how a line uses a value


def from_user(place: Place) -> Place:
    """The stack from the user's innermost frame outwards."""
    user = place.user_frame
    return Place(place.stack[place.stack.index(user) :]) if user in place.stack else place


def stands_alone(recording: Recording, place: Place) -> bool:
    """Whether a call is a statement by itself, so that its result is not used."""
    spot = spot_at(recording, place, own=False)
    return spot is not None and isinstance(spot.file.parents.get(spot.node), ast.Expr)


def assigns(recording: Recording, place: Place, name: str) -> bool:
    """Whether the expression at a place is assigned to the given name, or is the operand itself; then it is a tensor if
    the operand is one."""
    spot = spot_at(recording, place, own=False)
    if spot is None or not name or "..." in name:
        return False
    statement = spot.file.parents.get(spot.node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [expressions.dotted(target) for target in targets] == [name] or operands.plain(spot.node) == name


# ---------------------------------------------------------------- the replaced characters


def torch_name(file: ParsedFile) -> str:
    """The name under which the file imports torch, empty where it does not."""
    imported = (a for node in ast.walk(file.tree) if isinstance(node, ast.Import) for a in node.names)
    names = (a.asname or "torch" for a in imported if a.name == "torch" or a.name.startswith("torch.") and not a.asname)
    return next(names, "")


_METHODS = {dtype: method for method, dtype in CAST_METHODS.items()}


def cast_text(file: ParsedFile, wanted: str) -> str:
    """The text of a cast to put after an expression: ``.to(torch.float16)``, or ``.half()`` in a file that does not
    import torch by name; empty where there is no such method."""
    method = _METHODS.get(wanted)
    return f".to({torch_name(file)}.{wanted})" if torch_name(file) else f".{method}()" if method else ""


def _named(recording: Recording, place: Place, spot: Spot, named: ast.expr, wanted: str) -> Edit | None:
    """Changes the dtype that a call names: there where it is a literal, else where the literal stands that decided it.

    Never a literal over a variable: the next configuration would break.
    """
    if had := decisions.spelled(named):
        after = decisions.respelled(named, spot.file.segment(named), wanted)
        return spot.file.replaced(named, after, Change(NAMED, wanted)) if after and had != wanted else None
    torch = torch_name(spot.file)
    if isinstance(named, ast.Call) and expressions.last_part(named.func) == "get_default_dtype" and torch:
        return spot.file.replaced(named, f"{torch}.{wanted}", Change(NAMED, wanted))
    found = decisions.decision(recording.text, place, named, wanted)
    return found[0].replaced(found[1], found[2], Change(NAMED, wanted)) if found is not None else None


def _in_factory_call(
    recording: Recording, place: Place, spot: Spot, call: ast.Call, wanted: str, *, method_only: bool
) -> Edit | None:
    """Gives a factory's call the dtype, by keyword where it takes one, else by a cast of what it makes."""
    torch = torch_name(spot.file)
    own = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    if own is not None:
        return _named(recording, place, spot, own, wanted)
    known = all(k.arg is not None for k in call.keywords)
    name = expressions.last_part(call.func)
    if name in _MAKES and wider(wanted, _MAKES[name]):  # a cast of what it makes would come too late
        named = next((f"{torch}.{other}" for other, made in _MAKES.items() if made == wanted), "")
        whole = torch and named and expressions.dotted(call.func) == f"{torch}.{name}"
        return spot.file.replaced(call.func, named, _change(NAMED, wanted, named)) if whole else None
    takes_dtype = known and tagged(name, "takes_dtype")
    if method_only or not takes_dtype or not torch:
        return _cast(recording, spot, call, wanted)
    segment = spot.file.segment(call)
    inside = segment[: segment.rindex(")")].rstrip()
    comma = "" if inside.endswith("(") else " " if inside.endswith(",") else ", "
    named = _dtype_text(recording, spot, call, wanted)
    text = f"{inside}{comma}dtype={named}{segment[len(inside) :]}"
    return spot.file.replaced(call, text, _change(NAMED, wanted, named))


_MAKES = {
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "Tensor": "float32",
    "BFloat16Tensor": "bfloat16",
    "HalfTensor": "float16",
}
"""The constructors that make a tensor of one dtype from numbers."""


def _change_cast(recording: Recording, place: Place, spot: Spot, call: ast.Call, wanted: str) -> Edit | None:
    """Changes the dtype that a cast names."""
    torch = torch_name(spot.file)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in CAST_METHODS and not call.args:
        as_named = _dtype_text(recording, spot, call, wanted)
        text, change = _to(spot, as_named, wanted), _change(RECAST, wanted, as_named)
        return spot.file.replaced(call, _owner(spot.file, call, f".{name}") + text, change) if text else None
    if not torch:
        return None
    given = expressions.arguments(call)
    literal = next((a for a in given if (expressions.dotted(a) or "").startswith(f"{torch}.")), None)
    by_name = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    named = literal or (expressions.dtype_argument(call) if name in ("to", "type") else by_name)
    if named is None:
        return None
    if literal is not None:
        text = _dtype_text(recording, spot, call, wanted)
        return spot.file.replaced(literal, text, _change(NAMED, wanted, text))
    return _named(recording, place, spot, named, wanted)


def _dtype_text(recording: Recording, spot: Spot, node: ast.expr, wanted: str) -> str:
    """A dtype as the program itself names it where a node stands, else a literal; empty where it imports no torch."""
    torch = torch_name(spot.file)
    own = dtype_names.name_of(recording, spot.file, spot.frame.file, node, wanted)
    return own or (f"{torch}.{wanted}" if torch else "")


def _to(spot: Spot, named: str, wanted: str) -> str:
    return f".to({named})" if named else cast_text(spot.file, wanted)


def _cast(recording: Recording, spot: Spot, node: ast.expr, wanted: str, written: str = "") -> Edit | None:
    """The edit that casts an expression. A cast with which it ends is changed: a second one would round twice.

    ``written``: the dtype as the program is to write it, where that is known.
    """
    named = written or _dtype_text(recording, spot, node, wanted)
    text = _to(spot, named, wanted)
    last = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    added, changed = (_change(target, wanted, named) for target in (CAST, RECAST))
    if not isinstance(node, ast.Call) or wanted not in FLOATING:
        return _append_cast(spot, node, text, added)
    if CAST_METHODS.get(last) in FLOATING and not expressions.arguments(node):
        return spot.file.replaced(node, _owner(spot.file, node, f".{last}") + text, changed)
    had = expressions.dtype_argument(node) if last == "to" else None
    literal = had is not None and decisions.spelled(had) in FLOATING
    if had is None or not literal and (not named or decisions.spelled(ast.parse(named, mode="eval").body)):
        return _append_cast(spot, node, text, added)  # no literal is written over a variable
    file = spot.file
    before, after = file.between(file.start(node), file.start(had)), file.between(file.end(had), file.end(node))
    return spot.file.replaced(node, f"{before}{named}{after}", changed)


def _change(target: str, dtype: str, named: str) -> Change:
    """The change of an edit that writes a dtype; ``named``: as the program names it (``x.dtype``), if it does."""
    owner, _, last = named.rpartition(".")
    return Change(target, dtype, owner if last == "dtype" else "")


def _append_cast(spot: Spot, node: ast.expr, cast: str, change: Change) -> Edit | None:
    """The edit that puts a cast (``.to(torch.float16)``) after an expression."""
    if not cast or isinstance(spot.file.parents.get(node), ast.Expr):
        return None  # the value is not used, so a cast would change nothing
    segment = spot.file.segment(node)
    plain = isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Subscript))
    return spot.file.replaced(node, f"{segment}{cast}" if plain else f"({segment}){cast}", change)


def _owner(file: ParsedFile, call: ast.Call, method: str) -> str:
    """The text of the object that a method is called on, up to the dot, with the brackets around it (no node has
    those)."""
    return file.between(file.start(call), file.end(call.func))[: -len(method)]
