"""What gives an attribute of the program's own objects its value: the fields and constructors of their class.

The class of an object is known inside its methods. Elsewhere it is the only class that has all attributes that the same
function reads from the object. Pure functions over parsed files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..records.text import ParsedFile
from ..tables.operators import tagged
from .expressions import Function, dotted, function_around, last_part, passed

Files = Mapping[str, ParsedFile]


@dataclass(frozen=True)
class Setting:
    """What may have given one attribute of a class its value, each with its file."""

    given: tuple[tuple[str, ast.expr], ...]
    """What a constructor's call passes, or what is assigned."""
    default: tuple[str, ast.expr] | None
    """What the class itself says, if a constructor's call leaves it out."""
    reads: int
    """How many places read it; tensors that one function makes beside each other, as keys and values, count once."""


def setting(files: Files, path: str, node: ast.Attribute) -> Setting | None:
    """What may have given an attribute its value; None where the class or a constructor's call is unclear."""
    made = _class_of(files, path, node)
    if made is None or any(made.name in map(last_part, c.bases) for f in files.values() for c in _classes(f)):
        return None
    at = next(name for name, file in files.items() if made in file.parents)
    given = [(name, value) for name, value in _assigned(files, made, node.attr)]
    default = next((v for v in field_values(made, node.attr)), None)
    omitted = False
    for name, call in _constructors(files, made):
        known, value = _passed(made, call, node.attr)
        if not known:
            return None
        omitted |= value is None
        given += [(name, value)] if value is not None else []
    uses = [(files[name], n) for name, n in _uses(files, node.attr) if made in _classes_of(files, name, n)]
    reads = 1 if of_twins(uses) else len(uses)
    return Setting(tuple(given), (at, default) if omitted and default is not None else None, reads)


def of_twins(uses: Sequence[tuple[ParsedFile, ast.AST]]) -> bool:
    """Whether all places that read a dtype are in one function, where each makes a new tensor in it."""
    calls = [_making(file, node) for file, node in uses]
    return None not in calls and len({function_around(file, node) for file, node in uses}) == 1


def _making(file: ParsedFile, node: ast.AST) -> ast.Call | None:
    """The call of a factory that takes an expression as its dtype; None for any other use."""
    keyword = file.parents.get(node)
    call = file.parents.get(keyword) if isinstance(keyword, ast.keyword) and keyword.arg == "dtype" else None
    return call if isinstance(call, ast.Call) and tagged(last_part(call.func), "takes_dtype") else None


def _class_of(files: Files, path: str, node: ast.Attribute) -> ast.ClassDef | None:
    """The class of the object whose attribute is read; None where that is unclear."""
    possible = _classes_of(files, path, node)
    return possible[0] if len(possible) == 1 else None


def _classes_of(files: Files, path: str, node: ast.Attribute) -> list[ast.ClassDef]:
    """The classes of the program that the object whose attribute is read may have."""
    file, owner = files[path], dotted(node.value)
    scope = function_around(file, node)
    around = file.parents.get(scope)
    if isinstance(scope, Function) and isinstance(around, ast.ClassDef) and owner == _own_name(scope):
        return [around]
    if owner is None or _computes(scope, owner):
        return []
    used = {n.attr for n in ast.walk(scope) if isinstance(n, ast.Attribute) and dotted(n.value) == owner}
    return [c for f in files.values() for c in _classes(f) if used <= _attributes(c)]


def _computes(scope: ast.AST, name: str) -> bool:
    """Whether a name is an operand of arithmetic: then it is a tensor or a number."""
    operators = (n for n in ast.walk(scope) if isinstance(n, ast.BinOp))
    return any(dotted(side) == name for n in operators for side in (n.left, n.right))


def _own_name(function: ast.AST) -> str:
    given = function.args.args if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return given[0].arg if given else ""


def _classes(file: ParsedFile) -> Iterator[ast.ClassDef]:
    return (n for n in ast.walk(file.tree) if isinstance(n, ast.ClassDef))


def _attributes(made: ast.ClassDef) -> set[str]:
    """The names that a class gives its objects: fields, methods, what its methods assign."""
    fields = {name for s in made.body for name in _targets(s)}
    methods = {s.name for s in made.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assigned = {n.attr for n in ast.walk(made) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return fields | methods | assigned


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.AnnAssign):
        return [dotted(statement.target) or ""]
    return [dotted(t) or "" for t in statement.targets] if isinstance(statement, ast.Assign) else []


def field_values(made: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """What the body of a class itself gives a field."""
    for s in made.body:
        if isinstance(s, (ast.AnnAssign, ast.Assign)) and s.value is not None and name in _targets(s):
            yield s.value


def _uses(files: Files, name: str) -> Iterator[tuple[str, ast.Attribute]]:
    for path, file in files.items():
        for n in ast.walk(file.tree):
            if isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load):
                yield path, n


def _assigned(files: Files, made: ast.ClassDef, name: str) -> Iterator[tuple[str, ast.expr]]:
    """What is assigned to the attribute, of this class or of an object that may have it."""
    for path, file in files.items():
        for n in ast.walk(file.tree):
            if not isinstance(n, (ast.Assign, ast.AnnAssign)) or n.value is None:
                continue
            targets = n.targets if isinstance(n, ast.Assign) else [n.target]
            owned = [t for t in targets if isinstance(t, ast.Attribute) and t.attr == name]
            if any(made in _classes_of(files, path, t) for t in owned):
                yield path, n.value


def _constructors(files: Files, made: ast.ClassDef) -> Iterator[tuple[str, ast.Call]]:
    for path, file in files.items():
        yield from (
            (path, n) for n in ast.walk(file.tree) if isinstance(n, ast.Call) and last_part(n.func) == made.name
        )


def _passed(made: ast.ClassDef, call: ast.Call, name: str) -> tuple[bool, ast.expr | None]:
    """What a constructor's call passes for a field: whether that is clear, and the value (None where it is left out).

    A class with an ``__init__`` of its own assigns the attribute there, and that assignment is followed instead.
    """
    if any(isinstance(s, ast.FunctionDef) and s.name == "__init__" for s in made.body):
        return True, None
    return passed(call, [t for s in made.body if isinstance(s, ast.AnnAssign) for t in _targets(s)], name)
