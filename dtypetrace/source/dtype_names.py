"""How the program itself names a dtype: ``weight_dtype``, ``args.dtype``, ``x.dtype``, where that had this value.

A literal that is written into a program with a setting for its dtype breaks the next configuration. What a name held is
not in the text: the recorded casts and factories, with what their calls name, are the evidence.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..records import Edit, Frame, Recording
from ..records.text import ParsedFile
from .expressions import Function, call_at, dotted, dtype_argument, function_around

_PASSED_ON = frozenset({"self", "cls"})


@dataclass(frozen=True)
class _Named:
    """An expression that named a dtype in a call, and where."""

    text: str
    node: ast.expr

    @property
    def first(self) -> str:
        """The name with which it begins."""
        return self.text.partition(".")[0]


def name_of(recording: Recording, file: ParsedFile, path: str, node: ast.expr, wanted: str) -> str:
    """An expression of the program that has this dtype where a node stands; empty where none is known.

    A setting comes before another tensor's dtype, then what was used most. It is in scope, and nothing binds its first
    name between the node and the line on which it was seen.
    """
    around = function_around(file, node)
    found: Counter[str] = Counter()
    for named in _evidence(recording, file, path, wanted):
        its = function_around(file, named.node)
        known = its is around or isinstance(named.node, ast.Name) and _is_global(file, its, named.text)
        hidden = any(_is_loops(file, n, named.first) for n in (named.node, node))
        if known and not hidden and _keeps(file, around, node, named) and not _is_of(node, named.text):
            found[named.text] += 1
    settings = [text for text in found if not text.endswith(".dtype") or text == "self.dtype"]
    return max(settings or found, key=lambda text: found[text], default="")


def as_dtype_of(recording: Recording, edit: Edit, frame: Frame, name: str, used: Frame) -> Edit | None:
    """An edit that writes a dtype as a literal, with the dtype of a tensor of that name instead, which another line of
    the function uses later; None where the name is not bound there, or the edit writes no such literal."""
    call, later = call_at(recording.text, frame), call_at(recording.text, used)
    file = recording.text.parsed(frame.file)
    if file is None or call is None or later is None or not name.isidentifier() or not edit.change.dtype:
        return None
    around = function_around(file, call)
    argument = isinstance(around, Function) and name in _arguments(around)
    bound = argument or min(_bound(around, name), default=call.lineno) < call.lineno
    before, _, after = edit.after.rpartition(f".{edit.change.dtype}")
    keyword, _, torch = before.rpartition("dtype=")
    if frame.file != used.file or function_around(file, later) is not around or not bound or not torch.isidentifier():
        return None
    change = replace(edit.change, like=name)
    return replace(edit, after=f"{keyword}dtype={name}.dtype{after}", change=change)


def _evidence(recording: Recording, file: ParsedFile, path: str, wanted: str) -> Iterator[_Named]:
    """What calls of a file named for this dtype: by ``dtype=``, or by an argument that says in its name what it is."""
    events = (e for e in recording.events if e.to == wanted and (e.explicit or e.reads))
    places = {e.place for e in events} | {u.place for u in recording.unchanged if u.dtype == wanted}
    frames = {recording.places[n].stack[0] for n in places if n >= 0 and recording.places[n].stack}
    for frame in frames:
        if frame.user and frame.file == path and (named := _named(recording, frame)) is not None:
            yield named


def _named(recording: Recording, frame: Frame) -> _Named | None:
    call = call_at(recording.text, frame)
    node = dtype_argument(call) if call is not None else None
    text = dotted(node) if node is not None else None
    if call is None or node is None or text is None or text.startswith("torch.") or "[" in text:
        return None
    by_name = any(k.value is node and k.arg == "dtype" for k in call.keywords)
    return _Named(text, node) if by_name or "dtype" in text.rpartition(".")[2] else None


def _is_global(file: ParsedFile, seen_in: ast.AST, name: str) -> bool:
    """Whether a name that a function reads is bound outside all functions, and not in it."""
    inside = isinstance(seen_in, Function) and (_bound(seen_in, name) or name in _arguments(seen_in))
    return not inside and bool(_bound(file.tree, name))


def _keeps(file: ParsedFile, around: ast.AST, node: ast.expr, named: _Named) -> bool:
    """Whether a name is bound where a node stands, to what it was bound to where it was seen."""
    first = named.first
    argument = isinstance(around, Function) and first in _arguments(around)
    bound = _bound(around, first)
    if isinstance(around, Function) and not bound:
        return argument or _is_global(file, around, first)
    start, end = sorted((node.lineno, named.node.lineno))
    # a tensor that is bound on the earlier line has another dtype on the later one
    tensor = named.text.endswith(".dtype") and first not in _PASSED_ON
    between = (n for n in bound if (start <= n < end if tensor else start < n <= end))
    return (argument or bool(bound) and min(bound) < start) and next(between, None) is None


def _arguments(function: Function) -> set[str]:
    a = function.args
    return {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if p is not None}


def _bound(scope: ast.AST, name: str) -> list[int]:
    """The lines on which a scope binds a name."""
    return [node.lineno for node in _binding(scope, name)]


def _binding(scope: ast.AST, name: str) -> Iterator[ast.expr | ast.stmt]:
    for node in _inside(scope):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (node for a in node.names if (a.asname or a.name.partition(".")[0]) == name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from (node,) if node.name == name else ()
        elif isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            yield node


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of the functions, classes and loop variables of comprehensions in it, whose
    names are not seen outside of them."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if isinstance(node, ast.comprehension):
            yield from (n for part in (node.iter, *node.ifs) for n in (part, *_inside(part)))
        elif not isinstance(node, (Function, ast.ClassDef)):
            yield from _inside(node)


def _is_loops(file: ParsedFile, node: ast.AST, name: str) -> bool:
    """Whether a name is the variable of a comprehension around a node."""
    while node in file.parents:
        node = file.parents[node]
        loops = getattr(node, "generators", ())
        if any(isinstance(n, ast.Name) and n.id == name for loop in loops for n in ast.walk(loop.target)):
            return True
    return False


def _is_of(node: ast.expr, text: str) -> bool:
    """Whether it is the dtype of a tensor in the expression itself, which is to be changed."""
    return any(f"{dotted(part)}.dtype" == text for part in ast.walk(node))
