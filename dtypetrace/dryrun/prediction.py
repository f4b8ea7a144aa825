"""What a real kernel would do with a call, by the table of operator rules: the dtypes of its results, or the message
that it would raise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from ..capture.calls import dtype_name
from ..capture.repeats import repeatable
from ..tables import operator_rules
from ..tables.refusals import recognise
from ..tables.rule_language import Call, Given, Gives, Number, Prediction, Refuses, Unknown

Tensor = torch.Tensor
_SIMPLE_VALUE = 24
"""Longer texts among the arguments are no settings."""
_MOST_BYTES = 1 << 31
"""Operands larger than this together are not allocated to ask a kernel for its message."""


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a call in the order in which dtypetrace records them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v)


def describe(
    args: Sequence[Any], kwargs: Mapping[str, Any], outs: Sequence[str] = ("out",), names: Sequence[str] = ()
) -> Call:
    """What a call was given, without its values.

    outs: the keyword arguments that results are written into; names: those of the positional arguments, as far as
    known.
    """
    tensors = tuple(tensors_in((*args, *kwargs.values())))
    numbers, options, named = [], {}, ""
    named_args = [(names[n] if n < len(names) else str(n), a) for n, a in enumerate(args)]
    for key, value in (*named_args, *kwargs.items()):
        if isinstance(value, Tensor) and not key.isdigit():
            options[key] = "tensor"
        elif isinstance(value, torch.dtype):
            named = dtype_name(value)
        elif isinstance(value, (bool, str)):
            options[key] = str(value)
        elif isinstance(value, (int, float, complex)):
            numbers.append(Number(type(value).__name__, abs(value)))
            options[key] = f"{value:g}"
    return Call(
        tuple(Given(dtype_name(t.dtype), t.dim(), t.numel() == 0) for t in tensors),
        tuple(numbers),
        tuple((k, v) for k, v in sorted(options.items()) if len(v) <= _SIMPLE_VALUE and not set(v) & set(";:&,")),
        named,
        torch.is_grad_enabled() and any(t.requires_grad for t in tensors),
        sum(len(list(tensors_in(kwargs.get(name)))) for name in outs),
    )


@cache
def written_keywords(operator: Any) -> tuple[str, ...]:
    """The keyword arguments that an operator writes its results into."""
    arguments = operator._schema.arguments if hasattr(operator, "_schema") else ()
    return tuple(a.name for a in arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)


@cache
def _names(operator: Any) -> tuple[str, ...]:
    return tuple(a.name for a in operator._schema.arguments)


class Oracle:
    """Says what real kernels do, and counts the operators of which nothing is known."""

    def __init__(self) -> None:
        self.table = operator_rules.table()
        self.unknown: Counter[str] = Counter()
        """Operators without a rule for a call's dtypes, with the number of their calls."""

    def ask(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Prediction:
        """What the kernel of an operator does with these arguments."""
        name = str(func).removeprefix("aten.")
        given = _shortened(args) if name.startswith(operator_rules.ELEMENT_BY_ELEMENT) else args
        call = describe(given, kwargs, written_keywords(func), _names(func))
        answer = self.table.predict(name, call)
        if call.operands:
            self.count(func, answer)
        return answer

    def count(self, func: Any, answer: Prediction) -> None:
        """Counts a call of which nothing is known."""
        if isinstance(answer, Unknown):
            self.unknown[str(func).removeprefix("aten.")] += 1

    def refusal(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], said: Refuses) -> Exception | None:
        """The exception that the kernel raises for operands of these dtypes; None where it raises nothing.

        The CPU's kernel is called with operands whose memory is never touched: a kernel checks dtypes before it
        computes.
        """
        large = sum(t.numel() * t.element_size() for t in tensors_in((*args, *kwargs.values()))) > _MOST_BYTES
        if large or not repeatable(func):
            return _without_text(func, args, kwargs, said)
        try:
            func(*map(_empty, args), **{k: _empty(v) for k, v in kwargs.items()})
        except Exception as error:
            raised = error.with_traceback(None)
        else:
            return None
        known = recognise(str(raised), type(raised).__name__, str(func).removeprefix("aten."))
        return raised if known is not None else _without_text(func, args, kwargs, said)


def _shortened(args: Sequence[Any]) -> list[Any]:
    """The arguments of an operator on lists, without the positions whose tensors have the dtypes of earlier ones."""
    lists = [a for a in args if isinstance(a, (list, tuple)) and len(a) == len(args[0])]
    columns = {tuple((t.dtype, t.dim() > 0) if isinstance(t, Tensor) else type(t) for t in c): n
               for n, c in reversed(list(enumerate(zip(*lists))))}  # fmt: skip
    kept = sorted(columns.values())
    return [[a[n] for n in kept] if isinstance(a, (list, tuple)) and len(a) == len(args[0]) else a for a in args]


def _empty(value: Any) -> Any:
    """An argument with uninitialised tensors of the same form on the CPU."""
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_empty, value))
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _without_text(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], said: Refuses) -> Exception:
    dtypes = list(dict.fromkeys(str(t.dtype) for t in tensors_in((*args, *kwargs.values())) if t.is_floating_point()))
    name = func.overloadpacket.__name__
    if len(dtypes) > 1:
        return RuntimeError(f"{name}: expected operands of the same dtype, but got {dtypes[0]} and {dtypes[1]}")
    return NotImplementedError(f"\"{name}\" not implemented for '{''.join(dtypes[:1])}'")


def gives(said: Prediction, results: int) -> tuple[str, ...]:
    """The predicted dtypes of so many results, empty where nothing is known."""
    if not isinstance(said, Gives) or not said.dtypes:
        return ()
    made = said.dtypes * results if len(said.dtypes) == 1 else said.dtypes
    return made if len(made) == results else ()
