"""The arguments of a torch function, under the names in its documentation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.overrides import get_testing_overrides

Tensor = torch.Tensor
_KNOWN_SIGNATURES = 1024
"""More functions than one program calls."""


def arguments_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each argument with its name; lists of tensors are taken apart."""
    names = _signature(func, tuple(map(_kind, args)))
    last = len(names) - 1
    found: list[tuple[str, Any]] = []
    for i, value in enumerate(args):
        if names and names[last].startswith("*") and i >= last:
            listed = isinstance(value, (list, tuple))
            flatten(found, names[last][1:] if listed else f"{names[last][1:]}[{i - last}]", value)
        else:
            flatten(found, names[i] if i <= last else f"argument {i}", value)
    for name, value in kwargs.items():
        flatten(found, name, value)
    yield from found


def flatten(found: list[tuple[str, Any]], name: str, value: Any) -> None:
    """Adds a value to a list of named values; for a list or a PackedSequence, adds the tensors in it."""
    if isinstance(value, tuple) and hasattr(value, "batch_sizes"):  # a PackedSequence
        found.append((name, getattr(value, "data")))  # noqa: B009 - a tuple of torch's
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            if isinstance(item, (list, tuple, Tensor)):
                flatten(found, f"{name}[{i}]", item)
    else:
        found.append((name, value))


def _kind(value: Any) -> str:
    """What an argument is in terms of a schema: a tensor, a list of tensors, or something else."""
    if isinstance(value, Tensor):
        return "Tensor"
    return "List" if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value) else ""


@lru_cache(maxsize=_KNOWN_SIGNATURES)
def _signature(func: Any, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Argument names of a torch function, as in its documentation; a name for all remaining arguments begins with
    ``*``.

    They come from the operator's schema (the overload that takes arguments of these kinds) or from the Python
    signature. If that is hidden behind ``*args``, or there is none, they come from torch's own table of signatures.
    """
    schema = getattr(func, "_schema", None)
    if schema is not None:
        return tuple(a.name for a in schema.arguments)
    name = getattr(func, "__name__", "")
    if name == "__set__":
        return ("self", "value")
    if name in ("__setitem__", "__getitem__"):
        return ("self", "index", "value")
    plain = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    if plain.startswith("r") and name.startswith("__"):
        return ("self", "other")
    if hasattr(func, "__code__"):
        names = python_signature(func)
        return names if names != ("*args",) else python_signature(get_testing_overrides().get(func, func))
    names = _of_overload(name, plain, kinds)
    if not names:
        return python_signature(get_testing_overrides().get(func, func))
    # torch.mm(input, mat2) and x.mm(mat2) share a schema, whose first argument is self
    method = hasattr(func, "__objclass__") or plain != name or names[:1] != ("self",)
    return names if method else ("input", *names[1:])


def _of_overload(name: str, plain: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Argument names of the aten overload that takes arguments of these kinds, empty for none."""
    packet = getattr(torch.ops.aten, plain, None) or getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    schemas = [getattr(packet, overload)._schema.arguments for overload in packet.overloads()]
    schemas = [s for s in schemas if len(s) >= len(kinds)]
    if not schemas:
        return ()
    best = min(schemas, key=lambda s: sum(not _takes(a, kind) for a, kind in zip(s, kinds)))
    return tuple(a.name for a in best)


def _takes(argument: Any, kind: str) -> bool:
    text = str(argument.type)  # Tensor, Optional[Tensor], List[Tensor], List[int], number ...
    if not kind:
        return "Tensor" not in text or text.startswith("Optional")
    return "Tensor" in text and ("List" in text) is (kind == "List")


def python_signature(func: Any) -> tuple[str, ...]:
    """Names of a function's positional parameters, ``*args`` with its star; empty where Python cannot find them."""
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return ()
    kept = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    return tuple(f"*{p.name}" if p.kind == p.VAR_POSITIONAL else p.name for p in kept)


def operator_name(func: Any) -> str | None:
    """``addmm.default``, or None where it is not an operator."""
    return str(func).removeprefix("aten.") if hasattr(func, "_schema") else None
