"""Source edits that change a dtype where it was decided. Text only: nothing here runs or writes anything.

Each edit replaces one expression of the user's file and keeps everything around it as it is. Where
the text is not at hand, or the right change cannot be told from it, there is no edit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Edit, Frame, Place, Recording
from ..tables.operators import CAST_METHODS, TAKES_DTYPE, is_destination
from . import expressions


def at_birth(recording: Recording, kind: str, place: Place, wanted: str) -> Edit | None:
    """The edit that gives a tensor the wanted dtype where its dtype was born, None where there is no safe one.

    kind is the origin's; ``place`` must be a line of the user's own.
    """
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None:
        return None
    text, node = expressions.text_of(frame.file), expressions.expression_at(frame)
    if text is None or node is None:
        return None
    if kind in ("factory", "conversion", "worker", "parameter") and isinstance(node, ast.Call):
        return _in_call(frame, text, node, wanted, method_only=kind == "parameter")
    if kind == "cast" and isinstance(node, ast.Call):
        return _cast(frame, text, node, wanted)
    if kind in ("promotion", "autocast"):
        return _wrapped(frame, text, node, _casting(text, wanted))
    return None


def uncast(recording: Recording, place: Place) -> Edit | None:
    """The edit that takes a method's cast away and leaves what it cast: ``x.float()`` becomes ``x``."""
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None:
        return None
    text, node = expressions.text_of(frame.file), expressions.expression_at(frame)
    if text is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    plain = (
        node.func.attr in CAST_METHODS
        and not (node.args or node.keywords)
        or node.func.attr == "to"
        and len(node.args) + len(node.keywords) == 1
    )
    return _edit(frame, text, node, _owner(text, node).rstrip().removesuffix(".")) if plain else None


def at_widening(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that brings a result back to the wanted dtype in the expression that widened it."""
    return at_birth(recording, "promotion", place, wanted)


def at_call(
    recording: Recording,
    place: Place,
    op: str,
    module: str,
    argument: str,
    index: int,
    wanted: str,
    passed: tuple[str, int] = ("", -1),
) -> Edit | None:
    """The edit that casts an operand in the very call that refused it (see ``source.expressions.argument`` for the operand's naming).

    ``passed`` names the argument of a module's call, where the op was inside (see ``source.expressions.passed_node``). None for what
    the call writes into: it would write into the cast copy, and nobody would see it.
    """
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None or is_destination(op, argument, index):
        return None
    text = expressions.text_of(frame.file)
    if text is None:
        return None
    operand = expressions.operand_node(frame, op, module, argument, index)
    if passed[0]:
        operand = expressions.passed_node(frame, *passed) if "[" not in passed[0] else None
    if operand is None or isinstance(operand, (ast.Constant, ast.List, ast.Tuple, ast.Starred)):
        return None
    return _wrapped(frame, text, operand, _casting(text, wanted))


def at_call_like(
    recording: Recording, place: Place, op: str, module: str, argument: str, index: int, other: tuple[str, int]
) -> Edit | None:
    """The edit that casts an operand to the dtype of another of the same call, whichever that is: for a line that runs in two
    dtypes. ``other`` is the other's argument and index; None where that has no name of its own in the call."""
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None or is_destination(op, argument, index):
        return None
    text = expressions.text_of(frame.file)
    operand, like = (expressions.operand_node(frame, op, module, *which) for which in ((argument, index), other))
    name = expressions.dotted(like) if like is not None else None
    if (
        text is None
        or operand is None
        or name is None
        or isinstance(operand, (ast.Constant, ast.List, ast.Tuple, ast.Starred))
    ):
        return None
    return _wrapped(frame, text, operand, f".to({name}.dtype)")


def at_callers(
    recording: Recording,
    place: Place,
    op: str,
    module: str,
    argument: str,
    index: int,
    wanted: str,
    passed: tuple[str, int] = ("", -1),
) -> Iterator[tuple[Place, Edit]]:
    """The edits that cast an operand further out, in each call of the user's own that handed it on: where the refused call is
    a line that other models run as well. Arguments as for :func:`at_call`."""
    if not place.stack or recording.sources is not None or is_destination(op, argument, index):
        return
    frame = place.stack[0]
    operand = (
        expressions.passed_node(frame, *passed)
        if passed[0]
        else expressions.operand_node(frame, op, module, argument, index)
    )
    for outer, node in expressions.callers(place, operand, module):
        text = expressions.text_of(outer.file)
        if text is not None and not isinstance(node, (ast.Constant, ast.List, ast.Tuple)):
            edit = _wrapped(outer.stack[0], text, node, _casting(text, wanted))
            if edit is not None:
                yield outer, edit


def at_own_line(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts what the user's nearest own line gets from a library; a module can be cast so, too."""
    return at_birth(recording, "promotion", from_user(place), wanted)


def at_load(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts every floating tensor of a dictionary that is loaded."""
    place = from_user(place)
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None:
        return None
    text, node = expressions.text_of(frame.file), expressions.expression_at(frame)
    if text is None or not isinstance(node, ast.Call) or not _casting(text, wanted):
        return None
    loads = [
        n
        for n in ast.walk(node)
        if isinstance(n, ast.Call) and "load" in (expressions.dotted(n.func) or "").rpartition(".")[2]
    ]
    loaded = next((n for n in loads if n is not node), loads[0] if loads else None)
    if loaded is None:
        return None
    while isinstance(parent := text.parents.get(loaded), ast.Subscript) and parent.value is loaded:
        loaded = parent  # load(file)["model"]
    return _cast_values(frame, text, loaded, wanted)


def at_lent(recording: Recording, place: Place, wanted: str) -> tuple[Place, Edit] | None:
    """The call of ``functional_call`` nearest to a place, and the edit that casts the dictionary of weights that it lends."""
    for level, frame in enumerate(place.stack):
        call = expressions.call_at(frame) if frame.user and recording.sources is None else None
        if call is None or (expressions.dotted(call.func) or "").rpartition(".")[2] != "functional_call":
            continue
        text = expressions.text_of(frame.file)
        lent = next(
            (k.value for k in call.keywords if k.arg == "parameter_and_buffer_dicts"),
            call.args[1] if len(call.args) > 1 else None,
        )
        if (
            text is None
            or lent is None
            or isinstance(lent, (ast.Tuple, ast.List, ast.Starred))
            or not _casting(text, wanted)
        ):
            return None
        edit = _cast_values(frame, text, lent, wanted)
        return (Place(place.stack[level:]), edit) if edit is not None else None
    return None


def _cast_values(frame: Frame, text: expressions.Text, node: ast.expr, wanted: str) -> Edit | None:
    """Casts every floating tensor of a dictionary."""
    cast = f"value{_casting(text, wanted)} if value.is_floating_point() else value"
    return _edit(frame, text, node, f"{{name: {cast} for name, value in {_segment(text, node)}.items()}}")


def dropped(place: Place) -> bool:
    """Whether a call stands alone as a statement: what it gives is not what it is called for."""
    frame = place.stack[0] if place.stack else None
    text, node = (expressions.text_of(frame.file), expressions.expression_at(frame)) if frame else (None, None)
    return text is not None and isinstance(text.parents.get(node), ast.Expr)


def from_user(place: Place) -> Place:
    """The stack from the user's innermost frame on."""
    user = place.user_frame
    return Place(place.stack[place.stack.index(user) :]) if user in place.stack else place


def in_fallback(
    recording: Recording, place: Place, op: str, module: str, argument: str, index: int, dtype: str, fallback: str,
    passed: tuple[str, int] = ("", -1),
) -> tuple[Edit, ...]:  # fmt: skip
    """The edits that compute a call in another dtype and bring its result back to ``dtype``; several results stay what they
    are, as does one that becomes a Python number."""
    operand = at_call(recording, place, op, module, argument, index, fallback, passed)
    if operand is None:
        return ()
    frame = place.stack[0]
    text, node = expressions.text_of(frame.file), expressions.expression_at(frame)
    parent = text.parents.get(node)
    several = (
        isinstance(parent, ast.Attribute)
        or isinstance(parent, ast.Assign)
        and isinstance(parent.targets[0], (ast.Tuple, ast.List))
    )
    number = (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id in ("bool", "float", "int")
    )
    if several or number or not isinstance(node, ast.Call):
        return (operand,)
    back = _wrapped(
        frame, text, node, f".to({operand.before}.dtype)" if operand.before.isidentifier() else _casting(text, dtype)
    )
    return (operand, back) if back else (operand,)  # none where no name takes the result


def dtype_keyword(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that changes the dtype that a call is given by keyword."""
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None:
        return None
    text, named = expressions.text_of(frame.file), expressions.dtype_keyword(frame)
    return _edit(frame, text, named, f"{_torch(text)}.{wanted}") if named is not None and _torch(text) else None


def assigns(place: Place, name: str) -> bool:
    """Whether the expression at a place is what a name is given, or the operand itself: a tensor where the operand is one."""
    frame = place.stack[0]
    text, node = expressions.text_of(frame.file), expressions.expression_at(frame)
    statement = text.parents.get(node) if text is not None and node is not None else None
    if not name or node is None or "..." in name:
        return False
    return (
        isinstance(statement, ast.Assign)
        and [expressions.dotted(target) for target in statement.targets] == [name]
        or expressions.plain(node) == name
    )


def loads_state(place: Place) -> bool:
    """Whether what a place loads is handed to ``load_state_dict`` as it is: a dictionary of tensors, then."""
    frame = place.stack[0] if place.stack else None
    text, node = (expressions.text_of(frame.file), expressions.expression_at(frame)) if frame else (None, None)
    while text is not None and isinstance(parent := text.parents.get(node), ast.Subscript):
        node = parent
    call = text.parents.get(node) if text is not None else None
    return (
        isinstance(call, ast.Call)
        and (expressions.dotted(call.func) or "").endswith("load_state_dict")
        and call.args[:1] == [node]
    )


def scalar(recording: Recording, place: Place, value: str) -> Edit | None:
    """The edit that replaces a number which no half dtype holds by the limit of the tensor's own dtype."""
    frame = place.stack[0] if place.stack else None
    if frame is None or not frame.user or recording.sources is not None:
        return None
    text, node = expressions.text_of(frame.file), expressions.expression_at(frame)
    if text is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not _torch(text):
        return None
    owner = expressions.dotted(node.func.value)
    if owner is None or owner.split(".")[0] in (_torch(text), "F"):
        return None
    for argument in (*node.args, *(k.value for k in node.keywords)):
        if value in (expressions.number(argument), _segment(text, argument)):
            limit = "min" if value.startswith("-") else "max"
            return _edit(frame, text, argument, f"{_torch(text)}.finfo({owner}.dtype).{limit}")
    return None


def _torch(text: expressions.Text) -> str:
    """The name that the file calls torch by, empty where it has none."""
    imported = (a for node in ast.walk(text.tree) if isinstance(node, ast.Import) for a in node.names)
    return next(
        (a.asname or "torch" for a in imported if a.name == "torch" or a.name.startswith("torch.") and not a.asname), ""
    )


_METHODS = {dtype: method for method, dtype in CAST_METHODS.items()}


def _casting(text: expressions.Text, wanted: str) -> str:
    """What casts the expression that it follows: ``.to(torch.float16)``, or ``.half()`` in a file that does not import torch by
    name; empty where there is no such method."""
    method = _METHODS.get(wanted)
    return f".to({_torch(text)}.{wanted})" if _torch(text) else f".{method}()" if method else ""


def _in_call(frame: Frame, text: expressions.Text, call: ast.Call, wanted: str, *, method_only: bool) -> Edit | None:
    dtype = f"{_torch(text)}.{wanted}"
    name = (expressions.dotted(call.func) or "").rpartition(".")[2]
    own = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    if own is not None and _torch(text):
        return _edit(frame, text, own, dtype)
    if method_only or name not in TAKES_DTYPE or any(k.arg is None for k in call.keywords) or not _torch(text):
        return _wrapped(frame, text, call, _casting(text, wanted))
    segment = _segment(text, call)
    inside = segment[: segment.rindex(")")].rstrip()
    comma = "" if inside.endswith("(") else " " if inside.endswith(",") else ", "
    return _edit(frame, text, call, f"{inside}{comma}dtype={dtype}{segment[len(inside) :]}")


def _cast(frame: Frame, text: expressions.Text, call: ast.Call, wanted: str) -> Edit | None:
    torch = _torch(text)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in CAST_METHODS and not call.args:
        method = _casting(text, wanted).removeprefix(".")
        return _edit(frame, text, call, _owner(text, call) + method) if method else None
    if not torch:
        return None
    literal = next(
        (
            a
            for a in (*call.args, *(k.value for k in call.keywords))
            if (expressions.dotted(a) or "").startswith(f"{torch}.")
        ),
        None,
    )
    if literal is not None:
        return _edit(frame, text, literal, f"{torch}.{wanted}")
    named = (
        expressions.dtype_argument(call)
        if name in ("to", "type")
        else next((k.value for k in call.keywords if k.arg == "dtype"), None)
    )
    return _edit(frame, text, named, f"{torch}.{wanted}") if named is not None else None


def _wrapped(frame: Frame, text: expressions.Text, node: ast.expr, cast: str) -> Edit | None:
    """The edit that puts a cast (``.to(torch.float16)``) behind an expression."""
    if not cast or isinstance(text.parents.get(node), ast.Expr):
        return None  # nothing takes the value, so that its cast would change nothing
    segment = _segment(text, node)
    plain = isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Subscript))
    return _edit(frame, text, node, f"{segment}{cast}" if plain else f"({segment}){cast}")


def _owner(text: expressions.Text, call: ast.Call) -> str:
    """What a method is called on as it is written, up to the dot: no node knows of the brackets around it."""
    written = _between(text, expressions.start_of(text, call), expressions.end_of(text, call.func))
    return written[: -len(call.func.attr)]


def _segment(text: expressions.Text, node: ast.AST) -> str:
    return _between(text, expressions.start_of(text, node), expressions.end_of(text, node))


def _between(text: expressions.Text, start: tuple[int, int], stop: tuple[int, int]) -> str:
    (first, begin), (last, end) = start, stop
    if first == last:
        return text.lines[first - 1][begin - 1 : end - 1]
    middle = text.lines[first : last - 1]
    return "".join((text.lines[first - 1][begin - 1 :], *middle, text.lines[last - 1][: end - 1]))


def _edit(frame: Frame, text: expressions.Text, node: ast.AST, after: str) -> Edit:
    return Edit(
        frame.file, expressions.start_of(text, node), expressions.end_of(text, node), _segment(text, node), after
    )
