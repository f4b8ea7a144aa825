"""The setting of the program that decides for a cast: the condition under which it runs, or what names its dtype.

Text only.
"""

from __future__ import annotations

import ast

from ..records import Place
from ..records.text import ParsedFile, ProgramText
from .expressions import dotted, dtype_argument, own_call


def switch(text: ProgramText, place: Place, dtype: str) -> str:
    """How to set the program so that a cast at a place gives another dtype; empty where no setting decides for it."""
    if (own := own_call(text, place)) is None:
        return ""
    file, call = own
    if (flag := _condition(file, call)) is not None:
        option = _option(file, flag)
        return (
            f"leave out {option}: this cast runs only with it"
            if option
            else f"set {flag} to False: then it does not run"
        )
    named = dtype_argument(call)
    setting = dotted(named) if isinstance(named, ast.Attribute) else None
    if not setting or setting.startswith("torch.") or setting.endswith(".dtype"):
        return ""
    option = _option(file, setting)
    return f"set {setting} to {dtype}" + (f" ({option})" if option else "")


def _condition(file: ParsedFile, node: ast.AST) -> str | None:
    """The setting that must be true for a node's statement to run, as ``args.full_bf16``."""
    while (above := file.parents.get(node)) is not None and not isinstance(above, (*_FUNCTIONS, ast.Module)):
        if isinstance(above, ast.If) and node in above.body and isinstance(above.test, ast.Attribute):
            return dotted(above.test)
        node = above
    return None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _option(file: ParsedFile, setting: str) -> str:
    """The option of the command line that gives a setting its value."""
    name = setting.rpartition(".")[2]
    calls = (
        n for n in ast.walk(file.tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "add_argument"
    )
    given = (a.value for call in calls for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    return next((option for option in given if option.lstrip("-").replace("-", "_") == name), "")
