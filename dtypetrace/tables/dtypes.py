"""What each dtype is: its width, kind, range and precision. No other file states these facts.

Names are torch's (``float16``, not ``torch.float16``). The numbers follow from each format's exponent and significand;
``tests/tables/test_dtypes.py`` compares them with ``torch.finfo`` and ``torch.iinfo``. Standard library only.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ..errors import UnknownDtypeError

Kind = Literal["float", "complex", "integer", "bool", "quantised"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """One dtype. For a complex one, range and precision are those of its two parts.

    Integers only have ``lowest`` and ``largest``; their precision and smallest numbers are 0.
    """

    name: str
    bits: int
    """Width of one element in memory. A packed format (``float4_e2m1fn_x2``) counts the whole element."""
    kind: Kind
    lowest: float = 0
    largest: float = 0
    digits: int = 0
    """Binary digits of the significand, the implicit one included: 11 for float16."""
    smallest_normal: float = 0.0
    """The smallest positive number that has all digits."""
    smallest: float = 0.0
    """The smallest positive number, with a single digit; half of it and less rounds to zero."""
    storage_only: bool = False
    """Whether it can only store numbers: nearly every operator refuses it, and it takes part in no promotion."""
    counterpart: str = ""
    """For a real dtype, the complex dtype of that precision; for a complex dtype, the dtype of its parts."""
    label: str = ""
    """A short name for tables and legends: ``bf16``; narrow formats share one: ``f8``."""

    @property
    def bytes(self) -> int:
        """Width of one element in memory."""
        return max(self.bits // 8, 1)

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger number."""
        return 2.0 ** (1 - self.digits) if self.digits else 0.0

    @property
    def rounding(self) -> float:
        """Largest relative error of one rounding, half of ``eps``: a smaller relative change is rounded away."""
        return self.eps / 2


def _float(name: str, bits: int, digits: int, lowest_exponent: int, largest: float, label: str) -> Dtype:
    """A float whose normal numbers begin at ``2 ** lowest_exponent``, with subnormal ones below."""
    normal = 2.0**lowest_exponent
    storage = bits <= 8
    least = normal * 2.0 ** (1 - digits)
    return Dtype(name, bits, "float", -largest, largest, digits, normal, least, storage, label=label)


def _complex(name: str, part: Dtype) -> Dtype:
    return replace(part, name=name, bits=2 * part.bits, kind="complex", counterpart=part.name)


def _integer(name: str, bits: int, *, signed: bool, storage_only: bool = False) -> Dtype:
    lowest = -(2 ** (bits - 1)) if signed else 0
    return Dtype(name, bits, "integer", lowest, lowest + 2**bits - 1, storage_only=storage_only, label=name)


def _quantised(name: str, bits: int, *, signed: bool) -> Dtype:
    return replace(_integer(name, bits, signed=signed), kind="quantised")


_FLOATS = (
    _float("float64", 64, 53, -1022, (2 - 2.0**-52) * 2.0**1023, "f64"),
    _float("float32", 32, 24, -126, (2 - 2.0**-23) * 2.0**127, "f32"),
    _float("bfloat16", 16, 8, -126, (2 - 2.0**-7) * 2.0**127, "bf16"),
    _float("float16", 16, 11, -14, 65504.0, "f16"),
    _float("float8_e4m3fn", 8, 4, -6, 448.0, "f8"),
    _float("float8_e4m3fnuz", 8, 4, -7, 240.0, "f8"),
    _float("float8_e5m2", 8, 3, -14, 57344.0, "f8"),
    _float("float8_e5m2fnuz", 8, 3, -15, 57344.0, "f8"),
    # powers of two and nothing else: no sign, no zero, no subnormal numbers
    Dtype("float8_e8m0fnu", 8, "float", 2.0**-127, 2.0**127, 1, 2.0**-127, 2.0**-127, True, label="f8"),
    # two numbers in one byte; the facts are those of one of them
    _float("float4_e2m1fn_x2", 8, 2, 0, 6.0, "f8"),
)
_COMPLEX_OF = {"float64": "complex128", "float32": "complex64", "float16": "complex32"}
_WITH_COMPLEX = tuple(replace(d, counterpart=_COMPLEX_OF.get(d.name, "")) for d in _FLOATS)
_COMPLEXES = tuple(_complex(d.counterpart, d) for d in _WITH_COMPLEX if d.counterpart)
_INTEGERS = (
    *(_integer(f"int{bits}", bits, signed=True) for bits in (64, 32, 16, 8)),
    _integer("uint8", 8, signed=False),
    *(_integer(f"uint{bits}", bits, signed=False, storage_only=True) for bits in (16, 32, 64)),
    *(_integer(f"int{bits}", bits, signed=True, storage_only=True) for bits in range(1, 8)),
    *(_integer(f"uint{bits}", bits, signed=False, storage_only=True) for bits in range(1, 8)),
    Dtype("bool", 8, "bool", 0, 1, label="bool"),
)
_QUANTISED = (
    _quantised("qint32", 32, signed=True),
    _quantised("qint8", 8, signed=True),
    _quantised("quint8", 8, signed=False),
    _quantised("quint4x2", 8, signed=False),
    _quantised("quint2x4", 8, signed=False),
)

DTYPES: Mapping[str, Dtype] = MappingProxyType(
    {d.name: d for d in (*_WITH_COMPLEX, *_COMPLEXES, *_INTEGERS, *_QUANTISED)}
)
"""Every dtype of torch that holds numbers, by name."""

REAL = frozenset(d.name for d in DTYPES.values() if d.kind == "float")
"""Floating dtypes that are not complex."""
COMPLEX = frozenset(d.name for d in DTYPES.values() if d.kind == "complex")
FLOATING = REAL | COMPLEX
"""Dtypes with a significand and an exponent, complex ones included."""
INTEGERS = frozenset(d.name for d in DTYPES.values() if d.kind == "integer")
STORAGE_ONLY = frozenset(d.name for d in DTYPES.values() if d.storage_only)
HALF = frozenset({"float16", "bfloat16"})
"""The 16 bit dtypes that models compute in."""
NARROW = frozenset(name for name in REAL if DTYPES[name].digits <= DTYPES["float16"].digits)
"""Those, and the 8 bit ones that only store."""
COUNTERPART: Mapping[str, str] = MappingProxyType({d.name: d.counterpart for d in DTYPES.values() if d.counterpart})
"""Complex dtype to the dtype of its parts, and the reverse."""


ALIASES: Mapping[str, str] = MappingProxyType({
    "half": "float16", "float": "float32", "double": "float64", "chalf": "complex32", "cfloat": "complex64",
    "cdouble": "complex128", "short": "int16", "int": "int32", "long": "int64",
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "f16": "float16", "f32": "float32",
    "f64": "float64",
})  # fmt: skip
"""Second names: torch's own, and the short ones of trainers and their configurations."""


def parse(given: object, known: frozenset[str] | None = None, kind: str = "dtype") -> str:
    """The name of a dtype that a user gives as ``torch.bfloat16``, ``"torch.bfloat16"``, ``"bfloat16"`` or ``"bf16"``.

    Raises UnknownDtypeError for what is no dtype, or none of ``known``, which ``kind`` describes.

    >>> parse("bf16"), parse("torch.half"), parse("FP32")
    ('bfloat16', 'float16', 'float32')
    """
    wanted = known if known is not None else frozenset(DTYPES)
    spelled = str(given).strip().removeprefix("torch.")  # str() of a torch.dtype, without importing torch
    name = ALIASES.get(spelled.lower(), spelled.lower())
    if name in wanted:
        return name
    near = difflib.get_close_matches(name, sorted(wanted), 1)
    instead = f"did you mean {near[0]}?" if near else "give one such as torch.bfloat16"
    raise UnknownDtypeError(f"{str(given)!r} is no {kind}; {instead}")


def bytes_of(dtype: str, unknown: int = 1) -> int:
    """Bytes of one element; ``unknown`` where the dtype is not known.

    >>> bytes_of("float8_e4m3fn"), bytes_of("complex64"), bytes_of("python float", 0)
    (1, 8, 0)
    """
    known = DTYPES.get(dtype)
    return known.bytes if known is not None else unknown


def wider(one: str, other: str | None) -> bool:
    """Whether one floating dtype takes more memory than another. False where either is not floating.

    >>> wider("float32", "bfloat16"), wider("float16", "bfloat16"), wider("int64", "float32")
    (True, False, False)
    """
    return one in FLOATING and other in FLOATING and DTYPES[one].bits > DTYPES[other].bits


def narrower(one: str, other: str | None) -> bool:
    """Whether one floating dtype takes less memory than another. False where either is not floating."""
    return other is not None and wider(other, one)
