"""Integers that lose their values: arithmetic that wraps, fractions that a write cuts off, casts after which different
numbers are equal. The same for times and other float64 numbers, factors close to 1 that a cast makes 1, and integers so
large that float32 does not hold the digits that a remainder or a wave needs.

Each is measured on a sample of one call: the same arithmetic in int64, the same write in floating point, neighbours of
the sorted numbers before and after the cast. Numbers that Python or NumPy hands to a new tensor are cast, too. Nothing
is read on the host. Integers of 64 bits may wrap on purpose, as in a hash, so only arithmetic of smaller ones is looked
at.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .calls import HALVES
from .updates import sample

Tensor = torch.Tensor
_aten = torch.ops.aten
_SMALL = frozenset({torch.uint8, torch.int8, torch.int16})
"""Images, sounds and quantised numbers; their arithmetic wraps at a few hundred or thousand."""
_WRAPPING = _SMALL | {torch.int32}
_LARGE = frozenset({torch.int32, torch.int64})
"""Integers beyond those that float32 holds."""
_ADDS = {
    _aten.add.Tensor: 1, _aten.sub.Tensor: -1, _aten.add_.Tensor: 1, _aten.sub_.Tensor: -1, _aten.rsub.Scalar: -1,
}  # fmt: skip
_POWERS = frozenset({_aten.mul.Tensor, _aten.pow.Tensor_Scalar})
_BY_INDEX = frozenset({_aten.index_add_.default, _aten.scatter_add_.default, _aten.index_put_.default})
_TOTALS = frozenset(
    {_aten.sum.default, _aten.sum.dim_IntList, _aten.cumsum.default, _aten.prod.default, _aten.prod.dim_int}
)
_PRODUCTS = frozenset({_aten.mm.default, _aten.bmm.default, _aten.mv.default, _aten.dot.default})
_REMAINDERS = frozenset({_aten.remainder.Scalar, _aten.remainder.Tensor, _aten.fmod.Scalar, _aten.fmod.Tensor})
_WAVES = frozenset({_aten.sin.default, _aten.cos.default})
_PERIODIC = _REMAINDERS | _WAVES
_CASTS = frozenset({_aten._to_copy.default, _aten.copy_.default})
_ARITHMETIC_IDS = frozenset(map(id, (*_ADDS, *_POWERS, *_BY_INDEX, *_TOTALS, *_PRODUCTS)))
"""By id: hashing an operator runs Python code."""
_CAST_IDS, _PERIODIC_IDS = frozenset(map(id, _CASTS)), frozenset(map(id, _PERIODIC))
CALLS, EVERY, LATEST = 48, 16, 16_000
"""The first calls of one op that are measured, the share of later ones, and the last."""
_SUMMED = 1 << 18
"""Integers of the longest sum that is measured: it is computed as a whole."""
_MULTIPLIED = 1 << 22
"""Multiplications of the largest matrix product that is measured."""


def concerns(func: Any, out: Tensor) -> bool:
    """Whether a call may lose integers: arithmetic of small ones, a cast, or the reduction of large ones to a period.
    Asked for every call that is measured."""
    known = id(func)
    if known in _CAST_IDS:
        return True
    return known in _ARITHMETIC_IDS and out.dtype in _WRAPPING or known in _PERIODIC_IDS and out.dtype is torch.float32


def measured(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> tuple[Tensor, Tensor] | None:
    """How many sampled numbers a call had to keep, and how many of those it did not; None where it can lose none."""
    if func in _PERIODIC and out.dtype is torch.float32:
        return _too_far(func, args)
    if func not in _CASTS:
        return _wrapped(func, args, kwargs, out) if out.dtype in _WRAPPING else None
    source = args[1] if func is _aten.copy_.default else args[0]
    if not isinstance(source, Tensor) or source.shape != out.shape or source.dtype is out.dtype:
        return None
    if out.dtype.is_floating_point:
        return _rounded(source, out)
    if not source.dtype.is_floating_point or out.dtype.is_complex or out.dtype is torch.bool:
        return None
    numbers = sample(source.detach())
    if out.dtype in _LARGE and func is not _aten.copy_.default:
        return _coarse(numbers) if source.dtype in _FINEST else None
    if func is _aten.copy_.default:  # a cast cuts off fractions as it was asked to
        known = torch.isfinite(numbers) & (numbers != 0)
        return known.sum(), (known & (numbers.trunc() != numbers)).sum()
    return _outside(numbers, out.dtype) if out.dtype in _SMALL else None


def takes(out: Tensor) -> bool:
    """Whether numbers that Python or NumPy hands to a tensor may be lost, and are few enough to be read a second
    time."""
    return out.numel() <= _HANDED and (out.dtype in HALVES or out.dtype is torch.float32)


def handed(data: Any, out: Tensor) -> tuple[Tensor, Tensor] | None:
    """The same for numbers of Python's or NumPy's from which a call made a tensor."""
    if isinstance(data, torch.Tensor) or getattr(data, "nbytes", 8 * out.numel()) < 8 * out.numel():
        return None  # no wider than what it became
    source = torch.tensor(data, dtype=torch.float64, device=out.device)
    return _rounded(source, out) if source.shape == out.shape else None


_HANDED = 1 << 14
"""Numbers of the longest list that is read a second time."""


def _rounded(source: Tensor, out: Tensor) -> tuple[Tensor, Tensor] | None:
    """Numbers that a cast to another floating dtype made equal, or made 1."""
    if out.dtype in HALVES:
        return _ones(source, out) if source.dtype in _WIDE and out.numel() <= _FACTORS else None
    if out.dtype is torch.float32 and (source.dtype in _LARGE or source.dtype is torch.float64):
        return _merged(source)
    return None


def _outside(numbers: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Floating numbers beyond the range of the integers to which they are cast."""
    limits, known, whole = torch.iinfo(dtype), torch.isfinite(numbers), numbers.double().trunc()
    return known.sum(), (known & ((whole < limits.min) | (whole > limits.max))).sum()


_WIDE = frozenset({torch.float32, torch.float64})
_FACTORS = 4096
"""Elements of the largest tensor of factors: activations of that size are not looked at."""


def _ones(source: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers that are not 1, and how many of them a cast made 1."""
    before, after = sample(source.detach()), sample(out.detach())
    other = torch.isfinite(before) & (before != 1)
    return other.sum(), (other & (after == 1)).sum()


_FINEST = {torch.float32: 2.0**24, torch.float16: 2.0**11, torch.bfloat16: 2.0**8}
"""From here on a dtype holds only every second integer."""


def _coarse(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Floating numbers that are cast to integers, and those so large that not every integer could be one of them."""
    known = torch.isfinite(numbers)
    return known.sum(), (known & (numbers.abs() > _FINEST[numbers.dtype])).sum()


_PERIOD = 2.0**5
"""A period that has fewer different numbers than this has lost its shape."""


def _too_far(func: Any, args: tuple[Any, ...]) -> tuple[Tensor, Tensor] | None:
    """Numbers of which a period is taken, and how many are integers whose neighbours in float32 are a good part of it
    away."""
    if not isinstance(args[0], Tensor) or args[0].dtype is not torch.float32:
        return None
    numbers = sample(args[0].detach()).abs()
    known = torch.isfinite(numbers)
    period = 2 * math.pi if func in _WAVES else args[1]
    period = period.abs().max() if isinstance(period, Tensor) else abs(period)
    apart = numbers * torch.finfo(torch.float32).eps
    return known.sum(), (known & (numbers > _FINEST[torch.float32]) & (apart * _PERIOD > period)).sum()


_COLUMNS = 8
"""Columns of the widest table whose columns are looked at one by one."""
_NOISE = 2.0**-44
"""Relative distance of two float64 numbers that may differ by rounding only."""


def _merged(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Different numbers, and how many of them are equal to their neighbour in float32: whole numbers to the next
    smaller one, others to the one before, in a table those of the same column. Among many measurements some lie close
    together by chance."""
    if numbers.dim() == 2 and 1 < numbers.shape[1] <= _COLUMNS and numbers.numel() <= _HANDED:
        columns = [torch.stack(_merged(column)) for column in numbers.detach().unbind(1)]
        different, equal = torch.stack(columns, 1)
        worst = equal.argmax().view(1)
        return different[worst].sum(), equal[worst].sum()
    taken = sample(numbers.detach())
    if not taken.dtype.is_floating_point:
        return _equal(taken.sort().values)
    whole, missing = taken.trunc() == taken, torch.full_like(taken, torch.nan)
    ordered = _equal(torch.where(whole, taken, missing).sort().values)
    others = _equal(torch.where(whole, missing, taken))
    return ordered[0] + others[0], ordered[1] + others[1]


def _equal(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbours that differ, and how many of them are equal in float32; NaN differs from nothing."""
    first, second = numbers[:-1], numbers[1:]
    apart = first != second
    if numbers.dtype.is_floating_point:
        known = torch.isfinite(first) & torch.isfinite(second)
        apart = known & ((second - first).abs() > _NOISE * second.abs())
    cast = numbers.to(torch.float32)
    return apart.sum(), (apart & (cast[1:] == cast[:-1])).sum()


def _wrapped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> tuple[Tensor, Tensor] | None:
    """Integer results that differ from the same arithmetic in int64."""
    if func in _BY_INDEX or func in _TOTALS:
        return _summed(func, args, kwargs, out)
    if func in _PRODUCTS:
        return _multiplied(args, out)
    operands = [_wide(a, out) for a in args[:2]]
    if len(operands) != 2 or operands[0] is None or operands[1] is None:
        return None
    (first, second), made = operands, sample(out).long()
    if func in _ADDS:
        scale = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
        if type(scale) is not int:
            return None
        change = second * (_ADDS[func] * scale)
        if func is _aten.rsub.Scalar:  # the second number less the first
            first, change = second, -first * scale
        elif func in (_aten.add_.Tensor, _aten.sub_.Tensor):
            if isinstance(args[1], Tensor) and args[1].untyped_storage()._cdata == out.untyped_storage()._cdata:
                return None  # it was changed too
            first = (made - change).to(out.dtype).long()  # what was there before the call
        true = first + change
    elif func is _aten.mul.Tensor:
        true = first * second
    else:
        if type(args[1]) is not int or not 0 <= args[1] <= _HIGHEST:
            return None
        true = first**second
    wrapped = (true != made).sum()
    return torch.full_like(wrapped, made.numel()), wrapped


def _multiplied(args: tuple[Any, ...], out: Tensor) -> tuple[Tensor, Tensor] | None:
    """A matrix product that differs from the same one in float64, which holds integers up to 2**53."""
    if out.numel() * args[0].shape[-1] > _MULTIPLIED:
        return None
    wrapped = (torch.matmul(args[0].double(), args[1].double()) != out.double()).sum()
    return torch.full_like(wrapped, out.numel()), wrapped


def _summed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> tuple[Tensor, Tensor] | None:
    """Sums and products of many integers that differ from the same ones in int64."""
    given = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if any(t.numel() > _SUMMED or t.dtype.is_floating_point for t in (*given, out)):
        return None
    if func in _TOTALS:
        true = func(args[0].long(), *args[1:], **{k: v for k, v in kwargs.items() if k != "dtype"})
    else:
        change = _added(func, args, kwargs, out)
        if change is None:
            return None
        true = (out - change).to(out.dtype).long() + change  # what was there before the call, and what it added
    wrapped = (true != out).sum()
    return torch.full_like(wrapped, out.numel()), wrapped


def _added(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Tensor | None:
    """What a write by index adds to each number, in int64; None where it adds nothing."""
    none = torch.zeros(out.shape, dtype=torch.int64, device=out.device)
    if func is not _aten.index_put_.default:
        dim, index, source = args[1:4]
        return func(none, dim, index, source.long()) * kwargs.get("alpha", 1)
    adds = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    masks = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])  # counted on the host
    return func(none, args[1], args[2].long(), True) if adds and not masks else None


_HIGHEST = 3
"""A power of a 16-bit integer that int64 holds."""


def _wide(value: Any, out: Tensor) -> Any:
    """An operand in int64, sampled as the result is; None where it is no integer."""
    if type(value) is int:
        return value
    if not isinstance(value, Tensor) or value.dtype.is_floating_point or value.dtype.is_complex:
        return None
    if value.dim() == 0:
        return value.long()
    return sample(value if value.shape == out.shape else value.expand(out.shape)).long()
