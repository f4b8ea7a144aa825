"""The dtype that torch computes in where operands differ: its promotion rules, without torch.

Source: ``c10/core/ScalarType.cpp`` and ``ATen/native/TypeProperties.cpp``. ``tests/tables/test_promotion.py`` compares
all pairs with ``torch.promote_types`` and ``torch.result_type``.
"""

from __future__ import annotations

from collections.abc import Iterable

from .dtypes import DTYPES, HALF

DEFAULT_FLOAT = "float32"
_CATEGORIES = {"bool": 0, "integer": 1, "float": 2, "complex": 3}
_INTEGER_FOR = {"bool": "bool", "int": "int64", "float": DEFAULT_FLOAT, "complex": "complex64"}


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers, -1 for every other dtype."""
    known = DTYPES.get(dtype)
    return _CATEGORIES.get(known.kind, -1) if known is not None else -1


def promote(one: str, other: str) -> str | None:
    """The dtype that can hold both, None where torch has none (storage formats).

    >>> promote("float16", "bfloat16"), promote("int64", "float16"), promote("uint8", "int8")
    ('float32', 'float16', 'int16')
    """
    if one == other:
        return one
    low, high = sorted((one, other), key=lambda d: (category(d), DTYPES[d].bits if d in DTYPES else 0))
    if category(low) < 0 or _is_small_float(low) or _is_small_float(high):
        return None
    if _is_wide_unsigned(low) or _is_wide_unsigned(high):
        return high if category(high) == 2 else None
    if category(high) == 3:
        return _complex(low, high)
    if category(low) < category(high):
        return high
    if category(high) == 2:
        return DEFAULT_FLOAT if {low, high} == HALF else high
    return _integer(low, high)


def _is_small_float(dtype: str) -> bool:
    return DTYPES[dtype].kind == "float" and DTYPES[dtype].storage_only


def _is_wide_unsigned(dtype: str) -> bool:
    return DTYPES[dtype].kind == "integer" and DTYPES[dtype].storage_only


def _complex(low: str, high: str) -> str | None:
    if category(low) < 2:
        return high
    part, other = DTYPES[high].counterpart, low if category(low) == 2 else DTYPES[low].counterpart
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
    if category(higher) == 3:
        return higher
    if category(higher) == 2:
        return DTYPES[higher].counterpart or _complex_of_half(higher) if category(lower) == 3 else higher
    if category(higher) == 0 or category(lower) >= 2:
        return promote(higher, lower)
    return higher


def _complex_of_half(dtype: str) -> str:
    """bfloat16 has no complex dtype of its own."""
    return "complex64"
