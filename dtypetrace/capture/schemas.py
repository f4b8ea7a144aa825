"""What an operator's schema says about its results: views of an operand, written into one, or new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch


@cache
def effect(func: Any) -> str:
    """``view``, ``write`` or ``new``; empty where there is no schema (a higher-order operator). Called once per
    operator.

    An operator that only changes its operand's shape or strides in place (``squeeze_``) is a view. One that makes new
    tensors and also writes to an operand (``native_batch_norm`` to its running mean) is ``new``.
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return ""
    if schema.is_mutable and torch.Tag.inplace_view not in func.tags:
        return "write" if all(r.alias_info is not None for r in schema.returns) else "new"
    return "view" if any(a.alias_info is not None for a in schema.arguments) else "new"


@cache
def _written(func: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of each argument that an operator writes into."""
    arguments = enumerate(func._schema.arguments)
    return tuple((n, a.name) for n, a in arguments if a.alias_info is not None and a.alias_info.is_write)


def written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, inputs: Sequence[Any]) -> tuple[int, ...]:
    """The index among a call's tensors of each that the operator writes into."""
    if effect(func) not in ("write", "new") or not func._schema.is_mutable:
        return ()
    targets = {id(t) for t in _targets(func, args, kwargs or {})}
    return tuple(n for n, t in enumerate(inputs) if id(t) in targets)


def _targets(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    for position, name in _written(func):
        value = args[position] if position < len(args) else kwargs.get(name)
        yield from value if isinstance(value, (list, tuple)) else (value,)
