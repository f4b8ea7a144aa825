"""Casts that copy only because they change the dtype.

``p.detach().half()`` is a copy of a float32 tensor, and ``p.detach().float()`` is that tensor itself. If the copy is
changed in place later, a diff that leaves the cast out, or casts to the dtype that is there, must still copy.
"""

from __future__ import annotations

import ast

from ..records import Edit, Place, Recording
from ..records.text import ParsedFile
from ..tables.operators import destination, is_cast


def would_share(recording: Recording, place: Place, wanted: str | None = None) -> bool:
    """Whether the cast at a place makes what is changed in place later, and would make no copy with the wanted dtype;
    None for no cast at all. The cast of a module changes the module itself, whichever its dtype."""
    here = {n for n, found in enumerate(recording.places) if found.stack[:1] == place.stack[:1]}
    events = {
        n
        for n, event in enumerate(recording.events)
        if event.how == "cast" and event.place in here and (wanted is None or wanted in event.source)
    }
    casts = (op for op in recording.ops if op.place in here and is_cast(op) and op.inputs)
    if not events or any(op.inputs[0].holder == "parameter" for op in casts):
        return False
    return any(op.inputs[into].event in events for op in recording.ops if (into := destination(op)) >= 0)


def in_its_slot(file: ParsedFile, call: ast.Call) -> bool:
    """Whether a cast's result replaces the attribute that was cast: ``p.grad = p.grad.float()``."""
    statement, owner = file.parents.get(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return isinstance(owner, ast.Attribute) and list(map(ast.unparse, targets)) == [ast.unparse(owner)]


def as_copy(file: ParsedFile, call: ast.Call, edit: Edit) -> Edit | None:
    """A changed cast that always copies; None where its arguments do not show how."""
    if edit.file != file.path or not file.start(call) <= edit.start <= edit.end <= file.end(call):
        return None  # the literal stands elsewhere
    after = file.between(file.start(call), edit.start) + edit.after + file.between(edit.end, file.end(call))
    try:
        node = ast.parse(after, mode="eval").body
    except SyntaxError:
        return None
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not isinstance(function, ast.Attribute) or function.attr != "to":
        return None
    if len(node.args) > 2 or any(keyword.arg in ("copy", None) for keyword in node.keywords):
        return None
    given = after[: after.rindex(")")].rstrip().removesuffix(",")
    return file.replaced(call, f"{given}, copy=True)", edit.change)
