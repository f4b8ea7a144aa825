"""Integers that lose their values: arithmetic and casts that wrap, fractions that a write cuts off, casts after which
different numbers are equal. The same for times and other float64 numbers; and complex numbers that become real.

Each call is compared with the same call in a wider dtype: arithmetic in int64, a write in floating point, neighbours of
the sorted numbers before and after a cast. Numbers that Python or NumPy hands to a new tensor are cast, too. Nothing is
read on the host. Integers of 64 bits may wrap on purpose, as in a hash: only arithmetic of smaller ones is compared.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..tables.operators import tagged
from .calls import HALVES, packets
from .updates import sample

Tensor = torch.Tensor
_aten = torch.ops.aten
_SMALL = frozenset({torch.uint8, torch.int8, torch.int16})
"""Images, sounds and quantised numbers; their arithmetic wraps at a few hundred or thousand."""
_WRAPPING = _SMALL | {torch.int32}
_LARGE = frozenset({torch.int32, torch.int64})
"""Integers beyond those that float32 holds."""
_CASTS = packets("cast") | {_aten.copy_}
_FILLS = packets("fills")
_ARITHMETIC = packets("sum", "product", "total", "matmul", "adds_at", "not", "sign")
_HISTOGRAM = _aten.histc
"""Counts in the dtype of what is counted."""
_CAST_IDS, _FILL_IDS, _ARITHMETIC_IDS = (frozenset(map(id, part)) for part in (_CASTS, _FILLS, _ARITHMETIC))
"""By id: hashing an operator runs Python code."""
CALLS, EVERY, LATEST = 48, 16, 16_000
"""The first calls of one op that are measured, the share of later ones, and the last."""
_LONGEST = 1 << 18
"""Integers of the longest operand of a call that cannot be made on a sample."""
_MULTIPLIED = 1 << 22
"""The most multiplications of one matrix product that are measured."""
_ROWS = {"mm": 1, "mv": 1, "bmm": 2}
"""Products whose first rows, or matrices, are the product of their first operands' first ones."""
_HIGHEST = 3
"""A power of a 16-bit integer that int64 holds."""
HANDED = 1 << 14
"""Numbers of the longest list that is read a second time."""
_INTEGERS = _SMALL | _LARGE
_STORED = _INTEGERS | {torch.uint16, torch.uint32}
"""Integers that a cast may make; torch hardly computes with the last two."""
_REAL = 2.0**-10
"""An imaginary part up to this, relative to the largest number, may be the rounding of an inverse transform."""
_FINEST = {torch.float64: 2.0**53, torch.float32: 2.0**24, torch.float16: 2.0**11, torch.bfloat16: 2.0**8}
"""From here on a dtype holds only every second integer."""
_FAR = frozenset({torch.float64, torch.float32, torch.bfloat16})
"""The dtypes with numbers that int32 does not hold."""
_FINER = {torch.float32: _LARGE | {torch.float64}, torch.float64: frozenset({torch.int64})}
"""The dtypes with numbers that become equal in one."""
_COLUMNS = 8
"""Columns of the widest table whose columns are looked at one by one."""
_NOISE = 2.0**-44
"""Relative distance of two float64 numbers that may differ by rounding only."""

_PART = 2.0**-5
"""The share of the numbers that their fractions are, if more is lost with them than an image loses in bytes."""

_ROUNDINGS, _SELDOM = 4, 2.0**-8
"""How many roundings numbers may lie below a whole one, and the largest part of all that lie there by chance."""
_NEAR, _FLAT = 2.0**-6, 2.0**-36
"""How much numbers that lie far from zero differ by, relative to their size, if that is more than rounding."""
Counts = tuple[Tensor, ...]
"""How many sampled numbers a call had to keep, and how many of those it did not; of a cast to integers also, how many
had a fraction, and how many lay a rounding below a whole number; of a cast of integers to floating point, how many do
not come back as they were; and of arithmetic, how many became equal to others."""


def concerns(func: Any, out: Tensor) -> bool:
    """Whether a call may lose integers: arithmetic of small ones, or a cast. Asked for every call that is measured."""
    known = id(getattr(func, "overloadpacket", None))
    if known == id(_HISTOGRAM):
        return out.dtype in HALVES or out.dtype is torch.float32
    if known in _FILL_IDS:
        return out.dtype in _INTEGERS
    return known in _CAST_IDS or known in _ARITHMETIC_IDS and out.dtype in _WRAPPING


def measured(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Counts | None:
    """What a call did to integers; None where it can lose none."""
    packet = func.overloadpacket
    if packet is _aten.bitwise_not:
        return _flags(args[0])
    if packet in _FILLS:
        return filled(args[-1], out)
    if packet not in _CASTS:
        return (_stopped if packet is _HISTOGRAM else _wrapped)(func, args, kwargs, out)
    written = packet is _aten.copy_
    source = args[1] if written else args[0]
    if not isinstance(source, Tensor) or source.shape != out.shape or source.dtype is out.dtype:
        return None
    if out.dtype.is_floating_point and source.dtype.is_complex:
        return _imaginary(source)
    if out.dtype.is_floating_point:
        return _rounded(source, out.dtype) if source.dtype in _FINER.get(out.dtype, ()) else None
    if source.dtype in _INTEGERS and out.dtype in _STORED:
        return _outside(source, out.dtype)
    if not source.dtype.is_floating_point or out.dtype.is_complex or out.dtype is torch.bool:
        return None
    source = source.detach() if source.dtype in _FINEST else source.detach().float()  # float8 knows no arithmetic
    numbers = sample(source)
    known = torch.isfinite(numbers)
    if written:
        return (known & (numbers != 0)).sum(), _fractions(numbers, known)
    if out.dtype in _LARGE:
        if out.dtype is torch.int32 and source.dtype in _FAR:
            large = numbers.abs() > _FINEST[source.dtype]
            return *_far(numbers, known, large), _fractions(numbers, known), _short(numbers, known)
        outside = numbers.abs() > _FINEST.get(source.dtype, math.inf)
    else:
        limits, whole = torch.iinfo(out.dtype), numbers.double().trunc()
        outside = (whole < limits.min) | (whole > limits.max)
        spoilt = torch.maximum((known & outside).sum(), _peaks(source, limits))
        return known.sum(), spoilt, _fractions(numbers, known), _short(numbers, known)
    return known.sum(), (known & outside).sum(), _fractions(numbers, known), _short(numbers, known)


def _peaks(numbers: Tensor, limits: torch.iinfo) -> Tensor:
    """How many of the smallest and the largest of all numbers are outside a range: a sample seldom has those."""
    if not numbers.numel():
        return torch.zeros((), dtype=torch.int64, device=numbers.device)
    lowest, highest = (end.double().trunc() for end in torch.aminmax(numbers))
    return ((lowest < limits.min) & lowest.isfinite()).long() + ((highest > limits.max) & highest.isfinite()).long()


def _far(numbers: Tensor, known: Tensor, large: Tensor) -> Counts:
    """Different numbers, and how many of them lie with their neighbour beyond what int32 holds: one that only marks
    what is missing has none there. Where nothing does, numbers, and how many are large."""
    ordered = torch.where(known, numbers, 0.0).double().trunc().sort().values
    first, second = ordered[:-1], ordered[1:]
    limits, apart = torch.iinfo(torch.int32), first != second
    lost = (apart & ((second < limits.min) | (first > limits.max))).sum()
    return torch.where(lost > 0, apart.sum(), known.sum()), torch.where(lost > 0, lost, (known & large).sum())


def _fractions(numbers: Tensor, known: Tensor) -> Tensor:
    """How many numbers have a fraction, where those are a good part of all that the numbers hold."""
    numbers = torch.where(known, numbers.float(), 0.0)
    lost = numbers - numbers.trunc()
    return lost.count_nonzero() * (lost.abs().sum() > _PART * numbers.abs().sum())


def _short(numbers: Tensor, known: Tensor) -> Tensor:
    """How many numbers lie below a whole one by no more than some roundings, of such as lie there by chance seldom."""
    sizes = torch.where(known, numbers, 0.0).abs()
    gaps, roundings = sizes.ceil() - sizes, _ROUNDINGS * torch.finfo(numbers.dtype).eps * sizes
    return ((gaps > 0) & (gaps <= roundings) & (roundings <= _SELDOM)).sum()


def beyond(source: Tensor) -> Counts | None:
    """Numbers that are taken as integers, how many of them are so large that their dtype does not hold each, and how
    many lie a rounding below a whole number; None for other dtypes."""
    finest = _FINEST.get(source.dtype)
    if finest is None:
        return None
    numbers = sample(source.detach())
    known = torch.isfinite(numbers)
    return known.sum(), (known & (numbers.abs() > finest)).sum(), known.sum() * 0, _short(numbers, known)


def filled(number: Any, out: Tensor) -> Counts | None:
    """A number with a fraction that a call puts into integers."""
    if (
        out.dtype not in _INTEGERS
        or not isinstance(number, float)
        or not math.isfinite(number)
        or number == int(number)
        or not out.numel()
    ):
        return None
    all_of_it = torch.full((), out.numel(), dtype=torch.int64, device=out.device)
    return all_of_it, all_of_it


def takes(out: Tensor) -> bool:
    """Whether numbers that Python or NumPy hands to a tensor may be lost, and are few enough to be read a second
    time."""
    return out.numel() <= HANDED and (out.dtype is torch.float32 or out.dtype in _INTEGERS)


def crossed(source: Tensor, dtype: torch.dtype) -> Counts | None:
    """What became of numbers that NumPy still has: integers that wrap, and numbers that are equal in float32. Of others
    than whole numbers only such as lie far from zero beside what they differ by: a curve may be flat somewhere."""
    if not dtype.is_floating_point:
        return _gone(source) if source.is_floating_point() else _outside(source, dtype)
    if dtype is not torch.float32:
        return None
    counts = _merged(source, dtype)
    if not source.dtype.is_floating_point:
        return counts
    low, high = source.aminmax()
    size, spread = source.abs().mean(), high - low
    counted = (spread < _NEAR * size) & (spread > _FLAT * size) | (source.trunc() == source).all()
    return tuple(count * counted for count in counts)


def _gone(table: Tensor) -> Counts | None:
    """Numbers of those columns of a table in which all differ and lie between -1 and 1, beside such as go beyond: none
    of them is left among integers. No number that is outside a range, and how many are gone."""
    if table.dim() < 2 or not 1 < table.shape[-1] <= _COLUMNS:
        return None
    rows = table.reshape(-1, table.shape[-1])
    sizes = rows.abs()
    gone = ((sizes > 0) & (sizes < 1)).all(0) & (rows.amin(0) < rows.amax(0))
    lost = gone.sum() * len(rows) * (sizes >= 1).any()
    return lost, lost * 0, lost


def handed(data: Any, out: Tensor) -> Counts | None:
    """What became of numbers of Python's or NumPy's from which a call made a tensor; as integers, of such as are all
    below 1."""
    if isinstance(data, torch.Tensor) or getattr(data, "nbytes", 8 * out.numel()) < 8 * out.numel():
        return None  # no wider than what it became
    source = torch.tensor(data, dtype=torch.float64, device=out.device)
    if source.shape != out.shape:
        return None
    if out.dtype.is_floating_point:
        return _merged(source, out.dtype)
    below = (source.abs() < 1) & torch.isfinite(source)  # beyond that, whole parts are left
    return None if not below.all() else (below.sum(), below.sum() * 0, (source != 0).sum())


# ---------------------------------------------------------------- casts


def _outside(source: Tensor, dtype: torch.dtype) -> Counts | None:
    """Integers, and how many of them are outside the range of another integer dtype. A -1 that becomes the greatest
    number of an unsigned dtype marks what is to be ignored."""
    limits, range_ = torch.iinfo(dtype), torch.iinfo(source.dtype)
    if limits.min <= range_.min and range_.max <= limits.max:
        return None
    numbers = sample(source.detach()).long()
    outside = (numbers > limits.max) | (numbers < limits.min)
    if not limits.min:
        outside = outside & (numbers != -1)
    return torch.full_like(outside.sum(), numbers.numel()), outside.sum()


def _rounded(source: Tensor, made: torch.dtype) -> Counts:
    """What becomes equal; of integers also, how many different ones are others when they have been floating numbers:
    one that marks what is missing counts once."""
    if source.dtype.is_floating_point:
        return _merged(source, made)
    ordered = sample(source.detach()).sort().values
    others = ordered.to(made).long() != ordered
    changed = others[:1].sum() + (others[1:] & (ordered[1:] != ordered[:-1])).sum()
    return *_merged(source, made), changed


def _imaginary(source: Tensor) -> Counts:
    """Complex numbers, and how many of them have an imaginary part that is no rounding."""
    numbers = sample(source.detach())
    sizes = numbers.abs()
    return (sizes > 0).sum(), (numbers.imag.abs() > _REAL * sizes.amax()).sum()


def _merged(numbers: Tensor, made: torch.dtype) -> Counts:
    """Different numbers, and how many of them are equal to their neighbour in another dtype: whole numbers to the next
    smaller one, others to the one before, in a table those of the same column, or of the same row if it is one row of
    growing integers that was folded. Among many measurements some lie close together by chance."""
    if numbers.dim() == 2 and 1 < numbers.shape[1] <= _COLUMNS and numbers.numel() <= HANDED:
        columns = [torch.stack(_merged(column, made)) for column in numbers.detach().unbind(1)]
        if not numbers.dtype.is_floating_point:
            row = numbers.detach().reshape(-1)
            columns.append(torch.stack(_equal(row, made)) * (row[1:] > row[:-1]).all())
        different, equal = torch.stack(columns, 1)
        worst = equal.argmax().view(1)
        return different[worst].sum(), equal[worst].sum()
    taken = numbers.detach().reshape(-1) if numbers.numel() <= HANDED else sample(numbers.detach())
    if not taken.dtype.is_floating_point:
        return _equal(taken.sort().values, made)
    whole, missing = taken.trunc() == taken, torch.full_like(taken, torch.nan)
    ordered = _equal(torch.where(whole, taken, missing).sort().values, made)
    others = _equal(torch.where(whole, missing, taken), made)
    return ordered[0] + others[0], ordered[1] + others[1]


def _equal(numbers: Tensor, made: torch.dtype) -> Counts:
    """Neighbours that differ, and how many of them are equal in another dtype; NaN differs from nothing."""
    first, second = numbers[:-1], numbers[1:]
    apart = first != second
    if numbers.dtype.is_floating_point:
        known = torch.isfinite(first) & torch.isfinite(second)
        apart = known & ((second - first).abs() > _NOISE * second.abs())
    cast = numbers.to(made)
    return apart.sum(), (apart & (cast[1:] == cast[:-1])).sum()


# ---------------------------------------------------------------- arithmetic


def _stopped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Counts | None:
    """Bins of a histogram that hold anything, and how many of them hold at most half of what they should; in float32
    how many stand where one more is rounded off."""
    if out.dtype is torch.float32:
        last = _FINEST[out.dtype]
        return ((out > 0).sum(), (out == last).sum()) if args[0].numel() > last else None
    if args[0].numel() > _MULTIPLIED:
        return None
    true = func(args[0].detach().float(), *args[1:], **kwargs)
    return (true > 0).sum(), (2 * out.float() <= true).logical_and(true > 0).sum()


def _flags(numbers: Tensor) -> Counts:
    """Numbers of which ``~`` is taken, if each is 0 or 1: what comes out is neither. Of an image it is the negative."""
    taken = sample(numbers.detach())
    known = torch.full_like(taken.sum(), taken.numel())
    return known, known * ((taken == 0) | (taken == 1)).all()


def _wrapped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Counts | None:
    """Integer results that differ from those of the same call in int64."""
    given = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if any(t.dtype.is_floating_point or t.dtype.is_complex for t in given):
        return None
    name = func.overloadpacket.__name__
    if name in _ROWS:
        few = _MULTIPLIED // max(1, math.prod(args[0].shape[1:]) * math.prod(out.shape[1:][-1:]))
        args, out = tuple(a[:few] if n < _ROWS[name] else a for n, a in enumerate(args)), out[:few]
        given = list(args)
    if torch.Tag.pointwise in func.tags:
        made, take = sample(out), lambda value: _sampled(value, out)
    elif any(t.numel() > _LONGEST for t in (*given, out)):
        return None
    else:
        made, take = out, _wide
    if name == "pow" and (isinstance(args[1], Tensor) or not 0 <= args[1] <= _HIGHEST):
        return None
    if tagged(name, "matmul") and (name.startswith("_") or out.numel() * args[0].shape[-1] > _MULTIPLIED):
        return None  # too large, or torch's own for one dtype
    named = {key: torch.int64 if key == "dtype" else value for key, value in kwargs.items()}
    if not accumulates(func, args, kwargs):
        return None
    if func._schema.is_mutable:
        if "reduce" in name or not tagged(name, "sum", "adds_at") or any(_is_in(out, a) for a in args[1:]):
            return None  # it does more than add something that it does not change itself
        change = func(torch.zeros_like(made, dtype=torch.int64), *map(take, args[1:]), **named)
        true = (made - change).to(out.dtype).long() + change  # what was there before the call, and its change
    else:
        true = func(*map(take, args), **named)
    made = made.long()  # beside a number of 64 bits, a tensor's own dtype would decide
    wrapped = (true != made).sum()
    return torch.full_like(wrapped, made.numel()), wrapped, _distinct(true) - _distinct(made)


def _distinct(numbers: Tensor) -> Tensor:
    """How many neighbours differ when numbers are sorted."""
    ordered = sample(numbers).sort().values
    return (ordered[1:] != ordered[:-1]).sum()


def _is_in(memory: Tensor, value: Any) -> bool:
    return isinstance(value, Tensor) and value.untyped_storage()._cdata == memory.untyped_storage()._cdata


def accumulates(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call adds to what was there, if it is a write by index."""
    if not tagged(func.overloadpacket.__name__, "store"):
        return True
    adds = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    return adds and all(i is None or i.dtype.itemsize > 1 for i in args[1])  # a mask is counted on the host


def _wide(value: Any) -> Any:
    return value.long() if isinstance(value, Tensor) else value


def _sampled(value: Any, out: Tensor) -> Any:
    """An operand in int64, sampled as the result is."""
    if not isinstance(value, Tensor) or not value.dim():
        return _wide(value)
    return sample(value if value.shape == out.shape else value.expand(out.shape)).long()
