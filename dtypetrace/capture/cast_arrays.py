"""The array from which NumPy cast the one that a call makes a tensor of, where the running line shows the cast and the
array still exists: what torch gets can then be compared with it.

The program's text tells where to look, and the numbers whether it is the one: cast once more, they are the tensor's.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from types import FrameType
from typing import Any

import torch

from ..records.text import LIVE
from ..source import expressions
from .searched_frames import is_array, read
from .session import Session
from .stacks import variables

Tensor = torch.Tensor
_COPIES = frozenset({"array", "asarray", "ascontiguousarray", "require"})
_INTEGERS, _NUMBERS = "iu", "iuf"
"""Kinds of NumPy's dtypes."""


def wider(recorder: Session, frame: FrameType | None, made: Tensor, most: int) -> Any:
    """The first numbers, at most ``most``, of the wider array, as an array of one dimension; None for no such array.
    ``frame``: the program's own, which calls torch."""
    if frame is None or not recorder.user(frame.f_code.co_filename) or made.device.type != "cpu":
        return None
    call = recorder.places.expression(frame.f_code, frame.f_lasti)
    cast = _cast(frame.f_code.co_filename, call.args[0]) if isinstance(call, ast.Call) and call.args else None
    value: Any = read(cast, ChainMap(variables(frame), frame.f_globals)) if cast is not None else ()
    if not is_array(value) or value.shape != tuple(made.shape) or not value.dtype.isnative:
        return None
    kinds = _NUMBERS if made.dtype.is_floating_point else _INTEGERS
    if value.dtype.kind not in kinds or value.dtype.itemsize <= made.dtype.itemsize:
        return None
    numbers = value.flat[:most]
    try:
        again = torch.tensor(numbers).to(made.dtype)
    except (TypeError, ValueError):  # a dtype that this torch does not have
        return None
    return numbers if torch.equal(again, made.detach().reshape(-1)[:most]) else None


def _cast(path: str, node: ast.expr) -> ast.expr | None:
    """What an expression casts, itself or where the one statement that gives it its value does; None for no cast."""
    file = LIVE.parsed(path)
    if isinstance(node, ast.Name) and file is not None:
        given = expressions.assignments_in(expressions.function_around(file, node), node.id)
        value = given[0].value if len(given) == 1 else None
        node = value if isinstance(value, ast.Call) else node
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
        return node.func.value
    named = len(node.args) > 1 or any(k.arg == "dtype" for k in node.keywords)
    return node.args[0] if named and node.args and expressions.last_part(node.func) in _COPIES else None
