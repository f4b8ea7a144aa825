"""The dtype that torch computes in where operands differ: its promotion rules, without torch.

Source: ``c10/core/ScalarType.cpp`` and ``ATen/native/TypeProperties.cpp``. ``tests/tables/test_promotion.py`` compares
all pairs with ``torch.promote_types`` and ``torch.result_type``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from .dtypes import DTYPES, HALF

DEFAULT_FLOAT = "float32"


class Category(IntEnum):
    """The kinds of numbers, as promotion ranks them."""

    NONE = -1
    """No number that torch promotes."""
    BOOL = 0
    INTEGER = 1
    FLOAT = 2
    COMPLEX = 3


_CATEGORIES = {
    "bool": Category.BOOL,
    "integer": Category.INTEGER,
    "float": Category.FLOAT,
    "complex": Category.COMPLEX,
}
_INTEGER_FOR = {"bool": "bool", "int": "int64", "float": DEFAULT_FLOAT, "complex": "complex64"}


def category(dtype: str) -> Category:
    known = DTYPES.get(dtype)
    return _CATEGORIES.get(known.kind, Category.NONE) if known is not None else Category.NONE


def promote(one: str, other: str) -> str | None:
    """The dtype that can hold both, None where torch has none (storage formats).

    >>> promote("float16", "bfloat16"), promote("int64", "float16"), promote("uint8", "int8")
    ('float32', 'float16', 'int16')
    """
    if one == other:
        return one
    low, high = sorted((one, other), key=lambda d: (category(d), DTYPES[d].bits if d in DTYPES else 0))
    if category(low) is Category.NONE or _is_small_float(low) or _is_small_float(high):
        return None
    if _is_wide_unsigned(low) or _is_wide_unsigned(high):
        return high if category(high) == Category.FLOAT else None
    if category(high) == Category.COMPLEX:
        return _complex(low, high)
    if category(low) < category(high):
        return high
    if category(high) == Category.FLOAT:
        return DEFAULT_FLOAT if {low, high} == HALF else high
    return _integer(low, high)


def _is_small_float(dtype: str) -> bool:
    return DTYPES[dtype].kind == "float" and DTYPES[dtype].storage_only


def _is_wide_unsigned(dtype: str) -> bool:
    return DTYPES[dtype].kind == "integer" and DTYPES[dtype].storage_only


def _complex(low: str, high: str) -> str | None:
    if category(low) < Category.FLOAT:
        return high
    part, other = DTYPES[high].counterpart, low if category(low) == Category.FLOAT else DTYPES[low].counterpart
    both = promote(part, other)
    return DTYPES[both].counterpart if both is not None else None


def _integer(low: str, high: str) -> str | None:
    signed = [DTYPES[d].lowest < 0 for d in (low, high)]
    if signed[0] == signed[1]:
        return high
    return "int16" if DTYPES[high].bits == 8 else high  # uint8 is the only unsigned dtype to compute with


def number_dtype(kind: str) -> str:
    """The dtype that a Python number counts as: ``bool``, ``int``, ``float`` or ``complex``."""
    return _INTEGER_FOR[kind]


def result_type(with_dimensions: Iterable[str], without: Iterable[str] = (), numbers: Iterable[str] = ()) -> str | None:
    """The dtype of an elementwise result, from tensors with dimensions, tensors without dimensions, and Python numbers
    (given by kind).

    An earlier group decides, unless a later one has a higher category.

    >>> result_type(["float16"], ["float32"]), result_type(["int64"], [], ["float"])
    ('float16', 'float32')
    """
    groups = (_joined(with_dimensions), _joined(without), _joined(map(number_dtype, numbers)))
    result = ""
    for lower in reversed(groups):
        combined = _combined(lower, result)
        if combined is None:
            return None
        result = combined
    return result or None


def _joined(dtypes: Iterable[str]) -> str | None:
    """Empty for no dtype, None where some have no common dtype."""
    result = ""
    for dtype in dtypes:
        joined = promote(result, dtype) if result else dtype
        if joined is None:
            return None
        result = joined
    return result


def _combined(higher: str | None, lower: str | None) -> str | None:
    if higher is None or lower is None:
        return None
    if not higher or not lower:
        return higher or lower
    if category(higher) == Category.COMPLEX:
        return higher
    if category(higher) == Category.FLOAT:
        of_its_own = DTYPES[higher].counterpart  # bfloat16 has none
        return of_its_own or "complex64" if category(lower) == Category.COMPLEX else higher
    if category(higher) == Category.BOOL or category(lower) >= Category.FLOAT:
        return promote(higher, lower)
    return higher
