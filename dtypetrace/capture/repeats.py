"""Whether a call may be made again."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import resolve_name

from ..tables.repeatable import key, names
from .calls import op_name


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
