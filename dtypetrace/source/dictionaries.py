"""Source edits that cast the tensors of a dictionary: a checkpoint's, or a functional call's weights. Text only."""

from __future__ import annotations

import ast

from ..records import NAMED, Change, Edit, Place, Recording
from ..records.text import ParsedFile
from . import expressions
from .editing import Spot, cast_text, from_user, spot_at

_LOADS = "load_state_dict"


def at_load(recording: Recording, place: Place, wanted: str) -> Edit | None:
    """The edit that casts every floating tensor of a dictionary that is loaded."""
    spot = spot_at(recording, from_user(place))
    if spot is None or not isinstance(spot.node, ast.Call) or not cast_text(spot.file, wanted):
        return None
    if expressions.last_part(spot.node.func) == _LOADS and spot.node.args:  # it assigns what it is given
        return _cast_values(spot, spot.node.args[0], wanted)
    if (entry := _entry_passed(spot)) is not None:
        return _cast_values(spot, entry, wanted)
    calls = (n for n in ast.walk(spot.node) if isinstance(n, ast.Call))
    loads: list[ast.expr] = [n for n in calls if "load" in expressions.last_part(n.func)]
    loaded = next((n for n in loads if n is not spot.node), loads[0] if loads else None)
    if loaded is None:
        return None
    while isinstance(parent := spot.file.parents.get(loaded), ast.Subscript) and parent.value is loaded:
        loaded = parent  # load(file)["model"]
    return _cast_values(spot, loaded, wanted)


def _cast_values(spot: Spot, node: ast.expr, wanted: str) -> Edit:
    """Casts every floating tensor of a dictionary."""
    text = cast_values(spot.file, node, wanted, "value.is_floating_point()")
    return spot.file.replaced(node, text, Change(NAMED, wanted))


def cast_values(file: ParsedFile, node: ast.expr, wanted: str, which: str) -> str:
    """The text of a dictionary in which the values of a kind are cast."""
    text = file.segment(node)
    given = text if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Dict)) else f"({text})"
    return f"{{name: value{cast_text(file, wanted)} if {which} else value for name, value in {given}.items()}}"


def loads_state(recording: Recording, place: Place) -> bool:
    """Whether what a place loads, or an entry of it, is passed unchanged to ``load_state_dict``, or assigned by it, so
    that it must be a dictionary of tensors."""
    spot = spot_at(recording, place, own=False)
    if spot is None:
        return False
    if _entry_passed(spot) is not None:
        return True
    node: ast.expr = spot.node
    if isinstance(node, ast.Call) and expressions.last_part(node.func) == _LOADS:
        return True
    while isinstance(parent := spot.file.parents.get(node), ast.Subscript):
        node = parent
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(target := parent.targets[0], ast.Name)
    ):
        return any(_passed(call, ast.unparse(target)) for call in ast.walk(_scope(spot.file, parent)))
    return isinstance(parent, ast.Call) and _passed(parent, ast.unparse(node))


def _entry_passed(spot: Spot) -> ast.expr | None:
    """What ``load_state_dict`` is given to assign, if that is the only entry of a loaded dictionary that the function
    passes to it (``checkpoint["model"]``), or what the line of the load made of it."""
    above: ast.AST | None = spot.file.parents.get(spot.node)
    itself = isinstance(above, ast.Assign)
    while above is not None and not isinstance(above, ast.stmt):
        above = spot.file.parents.get(above)
    if not isinstance(above, ast.Assign) or len(above.targets) != 1 or not isinstance(above.targets[0], ast.Name):
        return None
    name, found = above.targets[0].id, []
    for call in ast.walk(_scope(spot.file, above)):
        if isinstance(call, ast.Call) and expressions.last_part(call.func) == _LOADS and call.args:
            given, assigns = call.args[0], any(k.arg == "assign" for k in call.keywords)
            entry = isinstance(given, ast.Subscript) and ast.unparse(given.value) == name
            if assigns and (entry or not itself and ast.unparse(given) == name and not _entry_of(spot)):
                found.append(given)
    return found[0] if len(found) == 1 else None


def _entry_of(spot: Spot) -> bool:
    """Whether a line takes an entry of what it loads: ``torch.load(file)["model"]``."""
    above = spot.file.parents.get(spot.node)
    return isinstance(above, ast.Subscript) and above.value is spot.node


def _passed(call: ast.AST, text: str) -> bool:
    """Whether a node passes an expression, as it is, to ``load_state_dict``."""
    if not isinstance(call, ast.Call) or expressions.last_part(call.func) != _LOADS:
        return False
    return bool(call.args) and ast.unparse(call.args[0]) == text


def _scope(file: ParsedFile, node: ast.AST) -> ast.AST:
    """The function, or the whole file, in which a statement stands."""
    while (above := file.parents.get(node)) is not None and not isinstance(
        node, (ast.FunctionDef, ast.AsyncFunctionDef)
    ):
        node = above
    return node
