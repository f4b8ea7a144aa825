"""Where a program makes or casts a model: the statement, and the edits that cast the model after it.

Text only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ..records import Edit, Frame, Place
from ..records.text import ProgramText
from . import editing
from .expressions import dotted, own_call


@dataclass(frozen=True)
class Made:
    """A statement after which an expression is a model: ``unet = UNet(...).half()``, ``self.vae.to(dtype)``."""

    file: str
    expression: str
    end: tuple[int, int]
    """Its end: line and column, from 1."""
    indent: str


def made(text: ProgramText, frame: Frame) -> Made | None:
    """The statement that a frame was in, if it assigns the model to a name or calls a method of it; else None."""
    file = text.parsed(frame.file)
    if file is None:
        return None
    holding = (n for n in ast.walk(file.tree) if isinstance(n, (ast.Assign, ast.Expr)) and _on(n, frame.line))
    statement = next(holding, None)
    model = _model(statement) if statement is not None else None
    name = dotted(model) if model is not None else None
    if statement is None or name is None:
        return None
    indent, last = file.indent(statement), file.end(statement)
    if indent.strip() or file.lines[last[0] - 1][last[1] - 1 :].split("#")[0].strip():
        return None  # something else stands on its lines
    return Made(frame.file, name, (last[0], len(file.lines[last[0] - 1].rstrip("\r\n")) + 1), indent)


def _on(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _model(statement: ast.Assign | ast.Expr) -> ast.expr | None:
    """What is assigned, or whose method is called."""
    if isinstance(statement, ast.Assign):
        return statement.targets[0] if len(statement.targets) == 1 else None
    call = statement.value
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def cast_after(text: ProgramText, at: Made, names: tuple[str, ...], dtype: str) -> Edit | None:
    """The edit that casts a model to a dtype after its statement; ``names``: only the modules whose names end so. None
    where the file uses the new lines' variables already, or imports no torch to name the dtype."""
    file = text.parsed(at.file)
    cast = editing.cast_text(file, dtype) if file is not None else ""
    if file is None or not cast:
        return None
    lines = [f"{at.expression}{cast}"]
    if names:
        if any(isinstance(n, ast.Name) and n.id in ("name", "module") for n in ast.walk(file.tree)):
            return None
        ends = ", ".join(f'"{name}"' for name in names)
        lines = [
            f"for name, module in {at.expression}.named_modules():",
            f"    if name.endswith({ends if len(names) == 1 else f'({ends})'}):",
            f"        module{cast}",
        ]
    return Edit(at.file, at.end, at.end, "", "".join(f"\n{at.indent}{line}" for line in lines))


def widened_after(text: ProgramText, place: Place, is_model: Callable[[str], bool]) -> Edit | None:
    """The edit that makes a model's trained weights float32 after the program's statement that made them half. None
    where the statement names no model."""
    frame = place.user_frame
    at = made(text, frame) if frame is not None else None
    if at is None or not is_model(at.expression):
        return None
    line = f"for p in {at.expression}.parameters(): p.data = p.data.float() if p.requires_grad else p.data"
    return Edit(at.file, at.end, at.end, "", f"\n{at.indent}{own_way(text, place, is_model) or line}")


def own_way(text: ProgramText, place: Place, is_model: Callable[[str], bool]) -> str:
    """The call of diffusers' function that makes the trained weights of the model of a statement float32; empty where
    the file does not import it."""
    frame = place.user_frame
    file, at = (text.parsed(frame.file), made(text, frame)) if frame is not None else (None, None)
    if file is None or at is None or not is_model(at.expression) or not editing.torch_name(file):
        return ""
    imports = (n for n in ast.walk(file.tree) if isinstance(n, ast.ImportFrom))
    known = any(a.name == _DIFFUSERS and a.asname is None for n in imports for a in n.names)
    return f"{_DIFFUSERS}({at.expression}, dtype={editing.torch_name(file)}.float32)" if known else ""


_DIFFUSERS = "cast_training_params"


def kept_out(text: ProgramText, place: Place, model: str, owner: str, name: str) -> Edit | None:
    """The edit by which a tensor of a model keeps its numbers when a statement at a place casts the model: they are
    taken before it and set again after it. ``owner``: the module of the model that has it; ``name``: its name there.
    None where the statement is another one than ``model = Model().to(dtype)`` or ``model.to(dtype)``."""
    frame, own = place.user_frame, own_call(text, place)
    found = made(text, frame) if frame is not None else None
    if own is None or found is None or not isinstance(own[1].func, ast.Attribute):
        return None
    file, call = own
    receiver, statement = own[1].func.value, file.parents.get(call)
    if not isinstance(statement, (ast.Assign, ast.Expr)) or found.expression.rpartition(".")[2] != model:
        return None
    if len(call.args) + len(call.keywords) > 1:
        return None  # it may move the model to a device, too
    path = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in filter(None, (*owner.split("."), name)))
    cast, new, indent = file.between(file.end(receiver), file.end(call)), f"{name}_float32", found.indent
    take, give = f"{new} = {found.expression}{path}", f"{found.expression}{path} = {new}"
    if any(isinstance(n, ast.Name) and n.id == new for n in ast.walk(file.tree)):
        return None
    first = file.segment(receiver)
    made_first = f"{found.expression} = {first}\n{indent}" if isinstance(statement, ast.Assign) else ""
    after = f"{made_first}{take}\n{indent}{found.expression}{cast}\n{indent}{give}"
    return file.replaced(statement, after)
