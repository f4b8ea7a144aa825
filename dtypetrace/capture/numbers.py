"""Numbers that a dispatch mode receives in place of tensors.

Each constant of a graph of ``torch.jit.trace`` is a tensor that stands for a Python number. When the graph runs in a
dispatch mode, torch passes such a tensor on as the number itself, which some operators do not accept.
"""

from __future__ import annotations

from typing import Any

import torch

_DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128,
}  # fmt: skip
"""The dtype of the constant from which torch made the number."""


def as_tensors(func: Any, args: tuple[Any, ...], error: Exception) -> tuple[Any, ...] | None:
    """The operands with tensors where the operator's schema refused a number before anything ran; else None."""
    schema = getattr(func, "_schema", None)
    # of any operator: it has not run yet. One that it calls would be named instead
    if schema is None or not str(error).startswith(f"{schema.name}() Expected a value of type 'Tensor'"):
        return None
    takes = [str(argument.type) for argument in schema.arguments]
    given = tuple(
        torch.scalar_tensor(value, dtype=_DTYPES[type(value)], device="cpu")
        if kind == "Tensor" and type(value) in _DTYPES
        else value
        for kind, value in zip(takes, args, strict=False)
    )
    return given if any(a is not b for a, b in zip(given, args, strict=True)) else None
