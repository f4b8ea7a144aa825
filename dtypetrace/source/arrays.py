"""Where NumPy was told the dtype of an array that the program hands to torch.

torch sees an array only where a call takes it. The text is followed from there to the array's allocation, through what
only stores and moves it: names, attributes, functions of the program, indexing, ``np.stack``. Where something was
computed on the way, or a way is unclear, nothing is said. Pure functions over a
:class:`~dtypetrace.records.text.ProgramText`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

from ..records import Frame, Place
from ..records.text import ParsedFile, ProgramText
from .decisions import At, Finder, spelled, takes
from .expressions import Assignment, Function, assignments_in, call_at, dotted, function_around, given_to, last_part
from .operands import located

_TAKES = frozenset({"from_numpy", "as_tensor", "tensor", "asarray"})
"""torch's functions that take an array with its dtype."""
_TOLD = MappingProxyType({
    "astype": 0, "to_numpy": 0, "array": 1, "asarray": 1, "asanyarray": 1, "zeros": 1, "ones": 1, "empty": 1, "full": 2,
    "frombuffer": 1, "fromfile": 1, "fromiter": 1, "memmap": 1, "loadtxt": 1, "genfromtxt": 1,
})  # fmt: skip
"""NumPy's functions and methods that make an array in the dtype that they are given, and at which position."""
_FLOAT64 = frozenset({"zeros", "ones", "empty"})
"""Those that make float64 where no dtype is given."""
_READS = frozenset({"frombuffer", "fromfile", "memmap"})
"""Those for which the dtype says what the bytes are."""
READS = frozenset({"frombuffer", "from_file", "from_dlpack"})
"""torch's functions that make a tensor of memory that is there: no mode sees them, no other dtype reads the bytes."""
_MOVES = frozenset({
    "array", "asarray", "asanyarray", "ascontiguousarray", "stack", "concatenate", "vstack", "hstack", "column_stack",
    "copy", "reshape", "transpose", "squeeze", "ravel", "flatten", "expand_dims", "flip", "take", "repeat", "tile",
    "swapaxes", "moveaxis", "zeros_like", "ones_like", "empty_like", "roll",
})  # fmt: skip
"""Those whose result has the dtype of the array that they are given, or whose methods they are."""
_BUILT_IN = MappingProxyType({"float": "float64", "int": "int64", "bool": "bool"})
_MOST = 200
"""Expressions that are followed."""


@dataclass(frozen=True)
class _End:
    """A dtype that an array may have, with the literal that names it; neither where it is unclear."""

    dtype: str = ""
    at: At | None = None


_UNCLEAR = _End()
_Ends = Iterator[_End] | None
"""None where it is unclear."""


def told(text: ProgramText, place: Place, dtype: str, known: bool = False) -> Frame | None:
    """The literal by which NumPy was told the dtype of the array that the call at a place takes. ``known``: the array
    was cast to that dtype, perhaps before another one.

    None where no one literal did, or, if it is not known, the array is an index somewhere: it would be none in another
    dtype.
    """
    frame = place.stack[0] if place.stack else None
    call = call_at(text, frame) if frame is not None and frame.user else None
    takes = last_part(call.func) if call is not None else ""
    if frame is None or call is None or not (takes in _TAKES or known and takes.endswith("Tensor")) or not call.args:
        return None
    finder = _Arrays(text, place, call, dtype if known else "")
    ends = list(finder.array(At(frame.file, call.args[0], 0)))
    found = {e.at.node if e.at is not None else None: e.at for e in ends if e.dtype == dtype}
    one = len({e.node.lineno if e is not None and known else n for n, e in found.items()}) == 1
    at = next(iter(found.values())) if one and (known or _UNCLEAR not in ends) else None
    file = text.parsed(at.file) if at is not None else None
    if at is None or file is None or not known and finder.indexes() or known and _takes_bits(file, at.node):
        return None
    return located(file, Frame(at.file, 0, _qualified(file, at.node), True), at.node)


def _takes_bits(file: ParsedFile, literal: ast.expr) -> bool:
    """Whether what a literal casts are bits or a rest, which a program takes of larger numbers."""
    above = file.parents.get(literal)
    call = file.parents.get(above) if isinstance(above, ast.keyword) else above
    parts = [call.func, *call.args] if isinstance(call, ast.Call) else []
    taken = [n for part in parts for n in ast.walk(part)]
    names = {n.id for n in taken if isinstance(n, ast.Name)}
    scope = function_around(file, literal)
    taken += [
        n for name in names for a in assignments_in(scope, name) if a.value is not None for n in ast.walk(a.value)
    ]
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, _OF_BITS) for n in taken)


_OF_BITS = ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Mod


def may_change(file: ParsedFile, literal: ast.expr) -> bool:
    """Whether an array can be made in another dtype than a literal names: the bytes of a file or buffer cannot."""
    above = file.parents.get(literal)
    call = file.parents.get(above) if isinstance(above, ast.keyword) else above
    return not isinstance(call, ast.Call) or last_part(call.func) not in _READS


def reads_memory(node: ast.expr) -> bool:
    """Whether a call makes a tensor of memory that is there."""
    return isinstance(node, ast.Call) and last_part(node.func) in READS


class _Arrays(Finder):
    """Follows one array. cast: the dtype that it had, though it may have been cast to another one since."""

    def __init__(self, text: ProgramText, place: Place, call: ast.Call, cast: str = "") -> None:
        super().__init__(text, place)
        self.cast = cast
        self.seen: set[ast.expr] = {call}
        self.names: set[str | None] = set()

    def indexes(self) -> bool:
        """Whether something that was followed is an index somewhere."""
        nodes = (n for file in self.files.values() for n in ast.walk(file.tree) if isinstance(n, ast.Subscript))
        return any(dotted(n) in self.names for node in nodes for n in ast.walk(node.slice) if _is_name(n))

    def array(self, at: At) -> Iterator[_End]:
        """The dtypes that an expression's array may have; nothing for what is followed already."""
        if at.node in self.seen:
            return
        self.seen.add(at.node)
        ends = self._values(at) if len(self.seen) < _MOST else None
        yield from ends if ends is not None else (_UNCLEAR,)

    def _values(self, at: At) -> _Ends:
        node = at.node
        if isinstance(node, ast.Call):
            return self._made(at, node)
        if isinstance(node, ast.Name):
            self.names.add(node.id)
            return self._each(self._bound(at, node.id))
        if isinstance(node, ast.Attribute) and node.attr != "T":
            self.names.add(dotted(node))
            return self._each(self._held(at, node))
        if isinstance(node, ast.Subscript) and isinstance(key := getattr(node.slice, "value", None), str):
            return self._each(self._under(key))
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            inner = [node.value]
        elif isinstance(node, (ast.List, ast.Tuple)):
            inner = node.elts
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            inner = [node.elt]
        else:
            inner = [node.body, node.orelse] if isinstance(node, ast.IfExp) else []
        return self._each(At(at.file, n, at.level) for n in inner)

    def _each(self, values: Iterable[At]) -> _Ends:
        known = list(values)
        return (end for value in known for end in self.array(value)) if known else None

    # ------------------------------------------------------------ names

    def _bound(self, at: At, name: str) -> list[At]:
        """What a name may hold; nothing where that is unclear."""
        file = self.text.parsed(at.file)
        if file is None:
            return []
        above: ast.AST | None = at.node
        while above is not None and not isinstance(above, Function):
            for loop in getattr(above, "generators", ()):
                if found := list(_each_of(loop.target, loop.iter, name)):
                    return _known(at, found)
            above = file.parents.get(above)
        scope = function_around(file, at.node)
        found = [n for s in ast.walk(scope) if function_around(file, s) is scope for n in _bound_by(s, name)]
        own = (a for a in assignments_in(scope, name) if function_around(file, a) is scope)
        parts: list[At] = []
        for assignment in own:
            part = list(self._part(assignment, name))
            parts += part
            found += [] if part else given_to(assignment, name)
        if self.cast:  # what else may be stored there is no other array
            found = [value for value in found if value is not None]
        elif None in found:
            return []
        parts += _known(at, found)
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or not takes(scope, name):
            return parts
        given = self._given(at, scope, name)
        return [*parts, *given] if given else []

    def _part(self, assignment: Assignment, name: str) -> Iterator[At]:
        """What a name gets of several values that a function of the program returns; nothing where that is unclear."""
        target = assignment.targets[0] if isinstance(assignment, ast.Assign) else None
        call = assignment.value
        if not isinstance(target, ast.Tuple) or not isinstance(call, ast.Call):
            return
        own = self._functions(last_part(call.func))
        returned = _returned(*own[0]) if len(own) == 1 else []
        values = [r.node.elts if isinstance(r.node, ast.Tuple) else [] for r in returned]
        if all(len(v) == len(target.elts) for v in values):
            for at, value in zip(returned, values):
                yield from (At(at.file, v, -1) for t, v in zip(target.elts, value) if dotted(t) == name)

    def _held(self, at: At, node: ast.Attribute) -> list[At]:
        """What an attribute may hold; nothing where that is unclear."""
        found = self.setting(at, node)
        values = (*found.given, *((found.default,) if found.default else ())) if found is not None else ()
        return [At(path, value, -1) for path, value in values]

    # ------------------------------------------------------------ calls

    def _made(self, at: At, call: ast.Call) -> _Ends:
        name, file = getattr(call.func, "attr", getattr(call.func, "id", "")), self.text.parsed(at.file)
        own = self._functions(name)
        if own or file is None:
            return self._each(_returned(*own[0]) if len(own) == 1 else [])
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        module = (dotted(owner) or "").partition(".")[0] if owner is not None else ""
        if module == "torch" or name in ("to", "tensor"):
            return None
        dtype, imported = _dtype_given(call, name), module in _imported(file)
        moved = owner if owner is not None and not imported else next(iter(call.args), None)
        if self.cast and spelled(call.func):  # np.uint16(array)
            dtype = call.func
        if dtype is not None:
            ends = list(self._dtypes(At(at.file, dtype, at.level)))
            if self.cast and moved is not None and all(e.dtype != self.cast for e in ends):
                ends += self.array(At(at.file, moved, at.level))
            return iter(ends)
        if name in _MOVES and moved is not None:
            return self._each([At(at.file, moved, at.level)])
        return iter([_End("float64")]) if imported and name in _FLOAT64 else None

    def _dtypes(self, at: At) -> Iterator[_End]:
        """The dtypes that an expression for NumPy may name."""
        built_in = _BUILT_IN.get(at.node.id if isinstance(at.node, ast.Name) else "")
        found = [] if built_in else list(self.follow(at, 0))
        if any(isinstance(f.node, ast.Constant) and f.node.value in _BUILT_IN for f in found):
            found = []  # torch's ``int`` is not NumPy's
        yield from (_End(spelled(f.node), f) for f in found)
        if not found:
            yield _End(built_in or "")

    def _functions(self, name: str) -> list[tuple[str, ast.FunctionDef]]:
        nodes = ((path, n) for path, file in self.files.items() for n in ast.walk(file.tree))
        return [(path, n) for path, n in nodes if isinstance(n, ast.FunctionDef) and n.name == name]


def _qualified(file: ParsedFile, node: ast.AST) -> str:
    """The name of the function or class around a node, as a frame has it."""
    names = []
    while (above := file.parents.get(node)) is not None:
        node = above
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
    return ".".join(reversed(names)) or "<module>"


def _known(at: At, found: Iterable[ast.expr | None]) -> list[At]:
    """Expressions beside another one; nothing where one of them is unclear."""
    nodes = list(found)
    return [At(at.file, n, at.level) for n in nodes if n is not None] if None not in nodes else []


def _bound_by(statement: ast.AST, name: str) -> Iterator[ast.expr | None]:
    """What a statement that is no assignment binds a name to; None where that is unclear."""
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from _each_of(statement.target, statement.iter, name)
    elif isinstance(statement, ast.withitem) and statement.optional_vars is not None:
        yield from (None for _ in _stored(statement.optional_vars, name))


def _each_of(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr | None]:
    """What a name gets where a loop's target takes each of a value; None where that is unclear."""
    if isinstance(target, ast.Name):
        yield from [value] if target.id == name else []
        return
    values = value.args if isinstance(value, ast.Call) and last_part(value.func) == "zip" else []
    parts = target.elts if isinstance(target, ast.Tuple) else []
    whole = len(parts) == len(values) > 0
    for number, part in enumerate(parts if whole else [target]):
        own = isinstance(part, ast.Name) and whole
        yield from (values[number] if own else None for _ in _stored(part, name))


def _stored(target: ast.expr, name: str) -> list[ast.Name]:
    names = [n for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return [n for n in names if n.id == name]


def _returned(path: str, function: ast.FunctionDef) -> list[At]:
    """What a function returns; nothing for a generator, and where it may return nothing."""
    inside = [n for n in ast.walk(function) if not isinstance(n, (ast.Lambda, ast.FunctionDef)) or n is function]
    values = [n.value for n in inside if isinstance(n, ast.Return)]
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in inside) or None in values:
        return []
    return [At(path, value, -1) for value in values if value is not None]


def _dtype_given(call: ast.Call, name: str) -> ast.expr | None:
    """The dtype that a call of NumPy's is given; None where it is given none."""
    if name not in _TOLD:
        return None
    number = _TOLD[name]
    by_name = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    return by_name or next(iter(call.args[number : number + 1]), None)


def _imported(file: ParsedFile) -> set[str]:
    imports = (n for n in ast.walk(file.tree) if isinstance(n, (ast.Import, ast.ImportFrom)))
    return {(a.asname or a.name).partition(".")[0] for n in imports for a in n.names}


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))
