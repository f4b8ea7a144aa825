"""What autocast does to each operator's operands, by device.

Facts of torch 2.13: ``ATen/autocast_mode.h`` for CUDA, ``ATen/autocast_mode.cpp`` for the CPU.
``tests/tables/test_autocast.py`` compares them with torch's registrations and with what autocast really does. Standard
library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal

from . import operators
from .dtypes import DTYPES, HALF, REAL

Policy = Literal["lower", "float32", "promote", ""]
"""``lower``: operands are cast to the region's dtype; ``float32``: half operands are cast to float32; ``promote``:
operands are cast to the widest of their dtypes."""

_OTHER_NAMES = {"cross_entropy": "cross_entropy_loss"}
"""Functions of torch.nn.functional whose operator has a different name."""


@cache
def _policies(device: str) -> dict[str, Policy]:
    kind = "cpu" if device.partition(":")[0] == "cpu" else "cuda"
    policies: tuple[Policy, ...] = ("lower", "float32", "promote")
    return {name: policy for policy in policies for name in operators.names(f"{kind}:{policy}")}


def names(device: str) -> frozenset[str]:
    """Every operator for which autocast has a rule."""
    return frozenset(_policies(device))


def refused(device: str) -> frozenset[str]:
    """The operators that autocast refuses."""
    return operators.names("cuda:banned") if device.partition(":")[0] == "cuda" else frozenset()


def policy(function: str, operator: str, device: str) -> Policy:
    """What autocast does to the operands of an operator that runs inside a call of a function; both are given by name,
    without overload.

    >>> policy("linear", "addmm", "cpu"), policy("softmax", "_softmax", "cuda"), policy("add", "add", "cpu")
    ('lower', 'float32', '')
    """
    known = _policies(device)
    inner = operator.lstrip("_").removesuffix("_forward")
    for name in (function, _OTHER_NAMES.get(function, ""), operator, inner):
        if name in known:
            return known[name]
    return ""


def cast(policy: Policy, dtypes: Iterable[str], region: str) -> tuple[str, ...]:
    """The dtypes of operands after autocast: float64 and dtypes that are not floating stay as they are.

    >>> cast("lower", ("float32", "int64", "float64"), "bfloat16")
    ('bfloat16', 'int64', 'float64')
    """
    given = tuple(dtypes)
    movable = [d for d in given if d in REAL and d != "float64"]
    if not policy or not movable:
        return given
    to = region
    if policy == "float32":
        to = "float32"
    elif policy == "promote":
        widest = max(movable, key=lambda d: DTYPES[d].bits)
        to = "float32" if len(set(movable) & HALF) > 1 else widest
    return tuple(to if d in movable else d for d in given)
