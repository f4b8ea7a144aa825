"""Numbers that become integers: the edit that rounds them before a cast, the one that multiplies by their scale after
it, and the one that divides integers into integers."""

from __future__ import annotations

import ast

from ..records import Change, Edit, Frame
from ..records.findings import CAST
from ..records.text import ProgramText
from ..tables.operators import CAST_METHODS
from .expressions import assignments_in, dotted, expression_at, function_around, last_part

_UNDOES: dict[type[ast.operator], str] = {ast.Div: "*", ast.Mult: "/"}


def undone(text: ProgramText, scales: Frame, stores: Frame, dtype: str) -> tuple[str, Edit] | None:
    """The scale by which the first frame divides or multiplies numbers, and the edit that undoes that where the second
    frame casts them to integers, which makes them ``dtype`` again; None where the same function does not do both, or
    gives the scale's name to something else in between."""
    file, division, cast = text.parsed(scales.file), expression_at(text, scales), expression_at(text, stores)
    if file is None or scales.file != stores.file or not isinstance(cast, ast.Call):
        return None
    if not isinstance(division, ast.BinOp) or (undoes := _UNDOES.get(type(division.op))) is None:
        return None
    scope, name = function_around(file, cast), dotted(division.right)
    if name is None or scope is not function_around(file, division):
        return None
    begins, ends = file.start(division), file.start(cast)
    if any(begins <= file.start(bound) < ends for bound in assignments_in(scope, name)):
        return None
    written = f"{file.segment(cast)} {undoes} {name}"
    plain = isinstance(file.parents.get(cast), (ast.Assign, ast.AnnAssign, ast.Return))
    edit = file.replaced(cast, written if plain else f"({written})", Change(CAST, dtype))
    return (name, edit) if edit is not None else None


def rounded(text: ProgramText, casts: Frame) -> Edit | None:
    """The edit that rounds numbers before the frame casts them, by a method of theirs (``.long()``)."""
    file, cast = text.parsed(casts.file), expression_at(text, casts)
    if file is None or not isinstance(cast, ast.Call) or not isinstance(cast.func, ast.Attribute):
        return None
    name = cast.func.attr
    if name not in ("to", "type") and name not in CAST_METHODS:
        return None
    method = f".{name}"
    owner = file.between(file.start(cast), file.end(cast.func))[: -len(method)]
    rest = file.between(file.end(cast.func), file.end(cast))
    return file.replaced(cast, f"{owner}.round(){method}{rest}")


def floored(text: ProgramText, divides: Frame) -> Edit | None:
    """The edit that makes a call of ``torch.div`` round its result down."""
    file, call = text.parsed(divides.file), expression_at(text, divides)
    if file is None or not isinstance(call, ast.Call) or any(k.arg in (None, "rounding_mode") for k in call.keywords):
        return None
    if last_part(call.func) not in ("div", "divide"):
        return None
    written = file.segment(call)
    return file.replaced(call, f'{written[:-1].rstrip().rstrip(",")}, rounding_mode="floor")')
