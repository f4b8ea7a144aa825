"""Where a dtype that a call takes from a variable was decided: an argument, a default, a setting, the environment.

A dtype is a singleton and has no history, so the text is followed: a name to its assignment or, through the stack,
to what the caller passed; an attribute or a key to the only place that sets it. Where two places could have decided,
or other code reads the decision too, none is named. Pure functions over a
:class:`~dtypetrace.records.text.ProgramText`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..records import Place
from ..records.text import ParsedFile, ProgramText
from ..tables.dtypes import ALIASES, DTYPES
from . import attributes
from .expressions import Function, assignments_in, call_at, default_of, dotted, function_around, last_part, passed

_DEEPEST = 12
"""How many names are followed; a longer chain is more likely a loop."""
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True)
class At:
    """An expression, and the level of the stack whose function it is in (-1: a function that is not running)."""

    file: str
    node: ast.expr
    level: int
    shared: bool = False
    """Whether other code reads the decision, too."""
    table: Mapping[str, str] | None = None
    """The program's own table in which a literal is a key: the dtype under each key; None where there is none."""

    @property
    def dtype(self) -> str:
        """The dtype that a literal stands for."""
        key = self.node.value if isinstance(self.node, ast.Constant) else None
        return (self.table or {}).get(str(key)) or spelled(self.node)


def decision(
    text: ProgramText, place: Place, written: ast.expr, wanted: str
) -> tuple[ParsedFile, ast.expr, str] | None:
    """The literal, with its file, that gave the dtype expression of a call a value other than the wanted dtype, and
    what to write instead; None where that is unclear, or where the program knows no such word."""
    if not place.stack:
        return None
    finder = Finder(text, place)
    followed = finder.follow(At(place.file, written, 0), 0)
    found = {(f.file, f.node): f for f in followed if f.dtype != wanted}
    at = next(iter(found.values())) if len(found) == 1 else None
    file = text.parsed(at.file) if at is not None else None
    if at is None or file is None or at.shared:
        return None
    after = _instead(at, file.segment(at.node), wanted)
    return (file, at.node, after) if after else None


def _instead(at: At, segment: str, wanted: str) -> str:
    """What to write for another dtype: where a table is looked up, one of its keys; empty where it has none for it."""
    usual = respelled(at.node, segment, wanted)
    if at.table is None or not isinstance(at.node, ast.Constant):
        return usual
    known = [segment.replace(str(at.node.value), key) for key, dtype in at.table.items() if dtype == wanted]
    return usual if usual in known else next(iter(known), "")


def spelled(node: ast.expr) -> str:
    """The dtype that a literal names: ``torch.float16``, ``"float16"``, ``"fp16"``; empty where it names none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.removeprefix("torch.")
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = node.attr
    else:
        return ""
    name = ALIASES.get(name, name)
    return name if name in DTYPES else ""


def respelled(node: ast.expr, segment: str, wanted: str) -> str:
    """A literal for another dtype, in the same style; empty where there is none."""
    if isinstance(node, ast.Attribute):
        return f"{segment[: segment.rindex('.')]}.{wanted}"
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return ""
    short = node.value in ALIASES and node.value.startswith(("fp", "bf"))
    name = _SHORT.get(wanted, "") if short else wanted
    return segment.replace(node.value.removeprefix("torch."), name) if name else ""


class Finder:
    """Follows one dtype's expression."""

    def __init__(self, text: ProgramText, place: Place) -> None:
        self.text, self.stack = text, place.stack
        parsed = ((path, text.parsed(path)) for path in sorted({f.file for f in place.stack if f.user}))
        self.files = {path: file for path, file in parsed if file is not None}

    def follow(self, at: At, depth: int) -> Iterator[At]:
        """The dtype literals from which an expression may get its value."""
        if depth > _DEEPEST:
            return
        node = at.node
        if spelled(node):
            yield at
        elif isinstance(node, ast.Name):
            yield from self._name(at, node.id, depth)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(at, node, depth)
        elif isinstance(node, ast.Subscript):
            yield from self._item(at, node, depth)
        elif isinstance(node, ast.Call):
            yield from self._call(at, node, depth)
        elif isinstance(node, ast.IfExp):
            for branch in (node.body, node.orelse):
                yield from self.follow(At(at.file, branch, at.level), depth + 1)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.follow(At(at.file, value, at.level), depth + 1)

    # ------------------------------------------------------------ names

    def _name(self, at: At, name: str, depth: int) -> Iterator[At]:
        file = self.text.parsed(at.file)
        if file is None:
            return
        scope: ast.AST = function_around(file, at.node)
        level = at.level
        while True:
            inside = [a for a in assignments_in(scope, name) if scope is not file.tree or _outside(file, a)]
            values = [a.value for a in inside if a.value is not None]
            if values:
                for value in values if _read_once(file, scope, name) else ():
                    yield from self.follow(At(at.file, value, level), depth + 1)
                return
            if isinstance(scope, Function) and takes(scope, name):
                yield from self._parameter(At(at.file, at.node, level), scope, name, depth)
                return
            if scope is file.tree:
                return
            scope, level = function_around(file, scope), -1  # a closure's

    def _parameter(self, at: At, function: ast.AST, name: str, depth: int) -> Iterator[At]:
        for value in self._given(at, function, name):
            yield from self.follow(value, depth + 1)

    def _given(self, at: At, function: ast.AST, name: str) -> list[At]:
        """What the callers pass for an argument, and its default where one leaves it out; nothing where that is
        unclear."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        a = function.args
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        names = names[names[:1] in (["self"], ["cls"]) :]
        calls = [c for c in self._callers(at, function) if c is not None]
        given = [(c, passed(c.node, names, name)) for c in calls if isinstance(c.node, ast.Call)]
        if not all(clear for _, (clear, _) in given):
            return []
        values = [At(call.file, value, call.level) for call, (_, value) in given if value is not None]
        default = default_of(function, name)
        left_out = not given or any(value is None for _, (_, value) in given)
        return [*values, At(at.file, default, -1)] if default is not None and left_out else values

    def _callers(self, at: At, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[At | None]:
        """The call on the stack, for a function that is running; else every call of that name in the files at hand."""
        if 0 <= at.level < len(self.stack) - 1:
            outer = self.stack[at.level + 1]
            call = call_at(self.text, outer)
            known = call is not None and outer.user
            return [At(outer.file, call, at.level + 1) if known and call is not None else None]
        file = self.text.parsed(at.file)
        name = function.name
        if name == "__init__" and file is not None and isinstance(around := file.parents.get(function), ast.ClassDef):
            name = around.name
        nodes = ((path, n) for path, parsed in self.files.items() for n in ast.walk(parsed.tree))
        return [At(path, n, -1) for path, n in nodes if isinstance(n, ast.Call) and last_part(n.func) == name]

    # ------------------------------------------------------------ settings

    def setting(self, at: At, node: ast.Attribute) -> attributes.Setting | None:
        return attributes.setting(self.files, at.file, node) if at.file in self.files else None

    def _attribute(self, at: At, node: ast.Attribute, depth: int) -> Iterator[At]:
        """What gives an attribute its value, by the object's class."""
        if (found := self.setting(at, node)) is None:
            return
        given = [list(self.follow(At(path, v, -1), depth + 1)) for path, v in found.given]
        if all(given):  # else a value is unknown
            defaults = [At(path, v, -1) for path, v in (found.default,)] if found.default else []
            ends = [end for value in given for end in value]
            ends += [end for default in defaults for end in self.follow(default, depth + 1)]
            yield from (replace(end, shared=end.shared or found.reads > 1) for end in ends)

    def _item(self, at: At, node: ast.Subscript, depth: int) -> Iterator[At]:
        """The value under a key, in every dictionary that has it; in a table of dtypes, the key's expression."""
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            for value in self._under(node.slice.value):
                yield from self.follow(value, depth + 1)
        elif not isinstance(node.slice, ast.Constant):
            yield from self._key(node.value, At(at.file, node.slice, at.level), depth)

    def _key(self, table: ast.expr, key: At, depth: int) -> Iterator[At]:
        """The literals that an expression which is looked up in a table gets its value from."""
        known = self._table(table)
        yield from (replace(end, table=known or end.table) for end in self.follow(key, depth + 1))

    def _table(self, node: ast.expr) -> dict[str, str] | None:
        """The dtypes under the keys of a dictionary that the program writes down once; None where that is unclear."""
        found = [node] if isinstance(node, ast.Dict) else []
        for file in self.files.values() if not found else ():
            for n in ast.walk(file.tree):
                if isinstance(n, (ast.Assign, ast.AnnAssign)) and isinstance(n.value, ast.Dict):
                    targets = n.targets if isinstance(n, ast.Assign) else [n.target]
                    found += [n.value for t in targets if last_part(t) == last_part(node)]
        if len(found) != 1:
            return None
        known = zip(found[0].keys, found[0].values)
        dtypes = {str(k.value): spelled(v) or spelled(k) for k, v in known if isinstance(k, ast.Constant)}
        return dtypes if len(dtypes) == len(found[0].keys) else None

    def _under(self, key: str) -> Iterator[At]:
        for path, file in self.files.items():
            for node in ast.walk(file.tree):
                if isinstance(node, ast.Dict):
                    pairs = zip(node.keys, node.values)
                    yield from (At(path, v, -1) for k, v in pairs if isinstance(k, ast.Constant) and k.value == key)
                elif isinstance(node, ast.Call) and last_part(node.func) == "dict":
                    yield from (At(path, k.value, -1) for k in node.keywords if k.arg == key)

    def _call(self, at: At, node: ast.Call, depth: int) -> Iterator[At]:
        name = last_part(node.func)
        inner: list[ast.expr] = []
        if name == "getattr" and len(node.args) >= 2:
            inner = [node.args[1]]
        elif name == "getenv" or name == "get" and "environ" in (dotted(node.func) or ""):
            inner = node.args[1:2]
        elif name == "get" and node.args and isinstance(node.args[0], ast.Constant):
            for value in self._under(str(node.args[0].value)):
                yield from self.follow(value, depth + 1)
        elif name == "get" and node.args and isinstance(node.func, ast.Attribute):
            yield from self._key(node.func.value, At(at.file, node.args[0], at.level), depth)
        elif name == "field":
            inner = [k.value for k in node.keywords if k.arg == "default"]
        for expression in inner:
            yield from self.follow(At(at.file, expression, at.level), depth + 1)


def _read_once(file: ParsedFile, scope: ast.AST, name: str) -> bool:
    """Whether one place reads a name or attribute, or only the twins that one function makes: if several read it, one
    call must not change it."""
    nodes = (n for n in ast.walk(scope) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load))
    uses = [n for n in nodes if getattr(n, "id", getattr(n, "attr", "")) == name]
    return len(uses) == 1 or attributes.of_twins([(file, n) for n in uses])


# ---------------------------------------------------------------- functions and their arguments


def _outside(file: ParsedFile, node: ast.AST) -> bool:
    """Whether a statement is outside any function."""
    return function_around(file, node) is file.tree


def takes(function: Function, name: str) -> bool:
    a = function.args
    return any(p.arg == name for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))
