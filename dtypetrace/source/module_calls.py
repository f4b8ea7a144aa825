"""How a call that takes a module's weight would be written as a call of the module. Text only."""

from __future__ import annotations

import ast

from ..records import Edit, Place
from ..records.text import ProgramText
from ..tables.operators import tagged
from .expressions import dotted, expression_at, last_part

_TRANSPOSED = frozenset({"t", "T", "mT"})


def module_call(text: ProgramText, place: Place) -> tuple[str, Edit] | None:
    """The module whose weight the expression at a place takes, and the edit that calls it instead.

    ``F.linear(x, head.weight, head.bias)`` and ``x @ head.weight.T`` become ``head(x)``. None for another
    expression, and for ``self``, whose call would run this line again. A product takes no bias: whether the module has
    one is not in the text of this line.
    """
    frame = place.stack[0] if place.stack else None
    file, node = (text.parsed(frame.file), expression_at(text, frame)) if frame is not None else (None, None)
    if frame is None or file is None or node is None:
        return None
    found = _linear(node) if isinstance(node, ast.Call) and last_part(node.func) == "linear" else _product(node)
    if found is None:
        return None
    given, owner = found
    if owner == "self":
        return None
    return owner, file.replaced(node, f"{owner}({file.segment(given)})")


def _linear(call: ast.Call) -> tuple[ast.expr, str] | None:
    """What ``linear`` is given and the module whose weight and bias it takes."""
    given = dict(zip(("input", "weight", "bias"), call.args)) | {k.arg or "": k.value for k in call.keywords}
    bias = given.get("bias")
    owner = _owner(given.get("weight"))
    if "input" not in given or not owner or "" in given:
        return None
    alone = bias is None or isinstance(bias, ast.Constant) or dotted(bias) == f"{owner}.bias"
    return (given["input"], owner) if alone else None


def _product(node: ast.expr) -> tuple[ast.expr, str] | None:
    """The left side of a product with a module's transposed weight, and the module."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        left, right = node.left, node.right
    elif isinstance(node, ast.Call) and tagged(last_part(node.func), "matmul") and len(node.args) == 2:
        left, right = node.args
    else:
        return None
    turned = right.func if isinstance(right, ast.Call) and not right.args else right
    if not isinstance(turned, ast.Attribute) or turned.attr not in _TRANSPOSED:
        return None
    owner = _owner(turned.value)
    return (left, owner) if owner else None


def _owner(weight: ast.expr | None) -> str:
    """The module of an expression ``module.weight``; empty for another one."""
    return (dotted(weight.value) or "") if isinstance(weight, ast.Attribute) and weight.attr == "weight" else ""
