"""Reads from the program's text whether an expression can be a tensor, or a module, by what is done with it nearby."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records.text import ParsedFile
from ..tables import attributes
from . import expressions

Position = tuple[int, int]
_OF_MAPS = frozenset(dir(dict)) | frozenset(dir(list))
"""Attributes that torch's containers of modules share with Python's: they do not distinguish them."""


def no_tensor(file: ParsedFile, node: ast.expr) -> str:
    """Why an expression is neither a tensor nor a module, in words; empty where nothing in its function shows that.

    What shows it: an attribute that no tensor has, a text as key, its result unpacked into several names.
    """
    shown = file.segment(node) or "it"
    if _gives_no_tensor(file, node):
        return f"{shown} is no tensor"
    above = file.parents.get(node)
    if isinstance(above, (ast.Attribute, ast.Subscript)) and (why := _foreign(above)):
        return f"{shown} holds tensors but is not one: {why}"
    name = expressions.dotted(node)
    bound = file.start(node)
    if name is None and isinstance(above, ast.Assign) and above.value is node and len(above.targets) == 1:
        if isinstance(above.targets[0], (ast.Tuple, ast.List)):
            return f"{shown} holds tensors but is not one: it is unpacked"
        name, bound = expressions.dotted(above.targets[0]), file.end(above)
    if name is None:
        return ""
    given = _only_value(file, node, name)
    if given is not None and _gives_no_tensor(file, given):
        return f"{name} holds tensors but is not one: it is {file.segment(given)}"
    uses = list(_uses(file, node, name, bound))
    if any(_of_module(file, use) for use in uses):
        return ""
    found = (_foreign(above) for use in uses if (above := file.parents.get(use)) is not None)
    why = next(filter(None, found), "")
    return f"{name} holds tensors but is not one: {why}" if why else ""


_DISPLAYS = (
    ast.Dict, ast.List, ast.Tuple, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.Constant,
    ast.JoinedStr, ast.Lambda,
)  # fmt: skip
"""Expressions whose value is a container, a number or a text."""
_BUILTINS = frozenset(
    "tuple list dict set frozenset map filter zip enumerate sorted reversed range len int float str".split()
)
_SEVERAL = frozenset(
    "split chunk unbind tensor_split hsplit vsplit dsplit split_with_sizes topk sort kthvalue cummax cummin svd qr "
    "eigh meshgrid items keys values tolist numpy item size state_dict named_parameters parameters".split()
)
"""Methods, and functions of torch, that give several tensors, or something that is none."""


def _gives_no_tensor(file: ParsedFile, node: ast.expr) -> bool:
    """Whether an expression's own form says that its value is no tensor."""
    if not isinstance(node, ast.Call):
        return isinstance(node, _DISPLAYS)
    if isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        return True
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SEVERAL:
        return True
    functions = [
        n for n in ast.walk(file.tree) if isinstance(n, ast.FunctionDef) and n.name == expressions.last_part(node.func)
    ]
    returned = (
        [n.value for f in functions for n in ast.walk(f) if isinstance(n, ast.Return)] if len(functions) == 1 else []
    )
    return bool(returned) and all(isinstance(value, _DISPLAYS) for value in returned)


def _only_value(file: ParsedFile, near: ast.expr, name: str) -> ast.expr | None:
    """What a name is assigned in the function around an expression, if that is done once."""
    found = expressions.assignments_in(expressions.function_around(file, near), name)
    targets = [t for n in found for t in (n.targets if isinstance(n, ast.Assign) else [n.target])]
    return found[0].value if len(found) == 1 and list(map(expressions.dotted, targets)) == [name] else None


def _uses(file: ParsedFile, node: ast.expr, name: str, at: Position) -> Iterator[ast.expr]:
    """Where the same function reads the value that a name has at a position: before it is assigned again."""
    scope = expressions.function_around(file, node)
    found = [n for n in ast.walk(scope) if isinstance(n, ast.expr) and expressions.dotted(n) == name]
    assigned = sorted(file.end(_statement(file, n)) for n in found if _is_stored(n))
    same = sum(position <= at for position in assigned)
    for use in found:
        if not _is_stored(use) and sum(position <= file.start(use) for position in assigned) == same:
            yield use


def _is_stored(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _statement(file: ParsedFile, target: ast.expr) -> ast.expr | ast.stmt:
    """The assignment of a target; a ``for`` or ``with`` binds its target where the target itself ends."""
    above: ast.AST = target
    while isinstance(above, ast.expr):
        above = file.parents[above]
    return above if isinstance(above, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else target


def _foreign(above: ast.AST) -> str:
    """What is done with a value that cannot be done with a tensor."""
    if isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Load) and not attributes.of_tensors(above.attr):
        return f"its .{above.attr} is used"
    key = above.slice if isinstance(above, ast.Subscript) else None
    return "it is indexed with a string" if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _of_module(file: ParsedFile, use: ast.expr) -> bool:
    """Whether a value is used as a module: it is called, or has an attribute that only modules have."""
    above = file.parents.get(use)
    if isinstance(above, ast.Call) and above.func is use:
        return True
    return isinstance(above, ast.Attribute) and attributes.of_modules(above.attr) and above.attr not in _OF_MAPS
