"""Operators on tensors without values: what the table says about their dtypes, and the form that meta kernels give
their results.

Both depend on nothing but what a call's arguments look like, so what an earlier call gave is given again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ..tables.rule_language import Prediction, Refuses
from . import devices
from .prediction import Oracle, gives, tensors_in

Tensor = torch.Tensor
_MOST_KNOWN = 1 << 16
"""Kinds of calls that are remembered."""
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format, torch.device)


@dataclass(frozen=True, slots=True)
class _Form:
    """What a tensor without values looks like."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Known:
    """The outcome of a kind of call: what the table said, and the result, in which a number stands for an operand and a
    form for a new tensor. No result where it must be asked each time."""

    said: Prediction
    result: Any
    complete: bool


class MetaKernels:
    """Runs operators on tensors without values."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self._known: dict[Any, _Known] = {}

    def run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], *, cuda: bool
    ) -> Any:
        """The result of an operator. Raises what the kernel would raise because of a dtype, and what the meta kernel
        raises."""
        key = _key(func, args, kwargs, tensors)
        known = self._known.get(key) if key is not None else None
        if known is None:
            said = self.oracle.ask(func, args, kwargs)
            if isinstance(said, Refuses):
                raised = self.oracle.refusal(func, args, kwargs, said)
                if raised is not None:
                    raise raised
            known = _Known(said, None, False)
        elif tensors:
            self.oracle.count(func, known.said)
        if known.complete:
            return mapped(known.result, lambda form: _made(form, tensors, cuda))
        if devices.changes_form(func):
            with devices.on_meta():
                return func(*args, **kwargs)
        inner = [devices.without_keys(t) for t in tensors]
        out = _called(func, args, kwargs, {id(t): new for t, new in zip(tensors, inner)})
        positions = {id(new): number for number, new in enumerate(inner)}
        dtypes = iter(gives(known.said, len(made)) if (made := list(tensors_in(out))) else ())
        result = mapped(out, lambda t: _form(t, positions, next(dtypes, None), func))
        if key is not None and len(self._known) < _MOST_KNOWN:
            self._known[key] = _Known(known.said, result, not func.is_view)
        if func.is_view:
            return mapped(out, lambda t: devices.placed(t, cuda=cuda))
        return mapped(result, lambda form: _made(form, tensors, cuda))


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inner: Mapping[int, Tensor]) -> Any:
    """Calls the meta kernel."""
    given = replaced(args, inner)
    named = {k: replaced(v, inner) for k, v in kwargs.items() if k not in ("generator", "pin_memory")}
    if _names_device(func) and (not inner or named.get("device") is not None):
        named["device"] = devices.META
    return func(*given, **named)


@cache
def _names_device(func: Any) -> bool:
    return any(a.name == "device" for a in func._schema.arguments)


def replaced(value: Any, made: Mapping[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return made.get(id(value), value)
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(v, made) for v in value)
    return value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A result with each tensor, or what stands for it, changed."""
    if type(value) in (list, tuple):
        return type(value)([mapped(v, change) for v in value])
    if isinstance(value, tuple):  # one of torch's named tuples
        return type(value)([mapped(v, change) for v in value])
    return change(value)


def _form(value: Any, positions: Mapping[int, int], dtype: str | None, func: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    number = positions.get(id(value))
    if number is not None:
        return _Operand(number)
    return _Form(tuple(value.shape), value.stride(), getattr(torch, dtype) if dtype is not None else value.dtype)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A result that is one of the operands, written in place."""

    number: int


def _made(form: Any, tensors: list[Tensor], cuda: bool) -> Any:
    if isinstance(form, _Operand):
        return tensors[form.number]
    if isinstance(form, _Form):
        made = torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device="meta")
        return devices.placed(made, cuda=cuda)
    return form


# ---------------------------------------------------------------- calls that look alike


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
    """What a call's outcome depends on; None where that is not plain."""
    records = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    try:
        return func, _look(args), _look(tuple(kwargs.items())) if kwargs else (), records
    except TypeError:
        return None


def _look(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_look, value))
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, torch.Generator):
        return torch.Generator
    raise TypeError(type(value))
