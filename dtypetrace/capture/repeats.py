"""Whether a call may be made again: only operators that have no effect outside their results are called a second time.

``tables/repeatable.txt`` names them, one a line, without overload and without the underscore of in-place ones; what is
not named is unknown, and unknown is no. ``python -m tools.repeatable`` measures it: torch's own samples of every
operator are called twice, and neither the state of random numbers, nor files, nor any argument that the schema does not
declare as written may have changed, and both calls must give the same.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.overrides import resolve_name

from .calls import op_name

TABLE = Path(__file__).parents[1] / "tables" / "repeatable.txt"


def key(name: str) -> str:
    """The name in the table of an operator or function.

    >>> key("add_"), key("__iadd__"), key("_foreach_add_")
    ('add', 'iadd', '_foreach_add')
    """
    if name.startswith("__") and name.endswith("__"):
        return name[2:-2]
    return name.rstrip("_")


@cache
def names() -> frozenset[str]:
    """All keys; those of another library's operators begin with its namespace (``torchvision::roi_align``)."""
    lines = TABLE.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def repeatable(function: Any) -> bool:
    """Whether an operator or a torch function is known to have no effect outside its results. Everybody asks here who
    makes a call that the program has made.

    What draws random numbers, reads files or communicates is not, nor another library's operator or a function of the
    program's own: those may do anything.
    """
    function = getattr(function, "operator", function)  # what stands for a fused function names its operator
    name = getattr(getattr(function, "overloadpacket", function), "_qualified_op_name", "")
    if name:
        space, _, own = name.partition("::")
        return (key(own) if space == "aten" else name) in names()
    if key(op_name(function)) not in names():
        return False
    return resolve_name(function) is not None or getattr(torch, function.__name__, None) is function
