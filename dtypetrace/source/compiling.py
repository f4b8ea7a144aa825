"""Where a program compiles a function or a module: the edit that makes its compiled code round as eager does, and the
one that leaves a call out of it.

Text only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ..records import Edit, Place
from ..records.text import ParsedFile, ProgramText
from .expressions import dotted

OPTION = '{"emulate_precision_casts": True}'
_KEYWORDS = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})
"""The arguments of ``torch.compile`` and of a module's ``compile``."""


def emulating(text: ProgramText, files: Iterable[str], name: str) -> Edit | None:
    """The edit that adds the option to the ``torch.compile`` of a function or method.

    None where the text does not show which one that is, or where it has arguments that exclude options. name: the
    function that was compiled.
    """
    found: list[tuple[ParsedFile, ast.expr, str]] = []
    for path in dict.fromkeys(files):
        file = text.parsed(path)
        found += [(file, node, of) for node, of in _compiles(file.tree)] if file is not None else []
    own = [f for f in found if f[2] == name] or found
    if len(own) != 1:
        return None
    file, node, _ = own[0]
    after = _with_option(file, node)
    return file.replaced(node, after) if after else None


def leaving_out(text: ProgramText, place: Place, names: Iterable[str]) -> Edit | None:
    """The edit that runs one call of a compiled function eagerly. None where the line has no call, or several, of a
    function, a method or a module with one of these names."""
    file = text.parsed(place.file)
    if file is None or not any(isinstance(n, ast.Import) and n.names[0].name == "torch" for n in file.tree.body):
        return None
    calls = [n for n in ast.walk(file.tree) if isinstance(n, ast.Call) and file.end(n.func)[0] == place.line]
    for name in names:
        found = [c.func for c in calls if getattr(c.func, "attr", getattr(c.func, "id", "")).strip("_") == name]
        if len(found) == 1:
            return file.replaced(found[0], f"torch.compiler.disable({file.segment(found[0])})")
    return None


def _compiles(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Each expression that compiles, with the function that it decorates."""
    decorators: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators.update((d, node.name) for d in node.decorator_list)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_compile(node):
            yield node, decorators.get(node, "")
    yield from ((d, name) for d, name in decorators.items() if isinstance(d, ast.Attribute) and _is_torchs(d))


def _is_torchs(node: ast.expr) -> bool:
    return dotted(node) == "torch.compile"


def _is_compile(call: ast.Call) -> bool:
    if _is_torchs(call.func):
        return True
    method = isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and not call.args
    return method and dotted(call.func) != "re.compile" and {k.arg for k in call.keywords} <= _KEYWORDS


def _with_option(file: ParsedFile, node: ast.expr) -> str:
    written = file.segment(node)
    if not isinstance(node, ast.Call):
        return f"{written}(options={OPTION})"
    given = {k.arg: k.value for k in node.keywords}
    if "mode" in given or ast.unparse(given.get("backend", ast.Constant("inductor"))) != "'inductor'":
        return ""
    options = given.get("options")
    if options is None:
        inside = written[:-1].rstrip()
        comma = "" if inside.endswith(("(", ",")) else ","
        return f"{inside}{comma}{' ' if not inside.endswith('(') else ''}options={OPTION})"
    if not isinstance(options, ast.Dict) or not options.keys:
        return ""
    before = file.segment(options)
    return written.replace(before, f"{before[:-1].rstrip().rstrip(',')}, {OPTION[1:]}", 1)
