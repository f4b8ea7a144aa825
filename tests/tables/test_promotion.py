"""Promotion without torch is torch's."""

from __future__ import annotations

import itertools

import pytest
import torch

from dtypetrace.tables.dtypes import DTYPES
from dtypetrace.tables.promotion import promote, result_type

COMPUTING = [n for n, d in DTYPES.items() if d.kind != "quantised" and not (d.kind == "integer" and d.bits < 8)]
COMMON = [
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "complex64",
    "complex128",
    "complex32",
    "int64",
    "int32",
    "uint8",
    "int8",
    "bool",
]
NUMBERS = {"bool": True, "int": 2, "float": 2.5, "complex": 2j}


def of_torch(function, *args):
    try:
        return str(function(*args)).removeprefix("torch.")
    except RuntimeError:
        return None


@pytest.mark.parametrize("one", COMPUTING)
def test_pairs_of_dtypes(one):
    for other in COMPUTING:
        if "float4_e2m1fn_x2" in (one, other) and {one, other} & {"uint16", "uint32", "uint64"}:
            continue  # torch gives float4, which no operator computes in
        assert promote(one, other) == of_torch(torch.promote_types, getattr(torch, one), getattr(torch, other)), other


def test_tensors_without_dimensions_and_numbers_come_after():
    flat = {d: torch.empty(2, dtype=getattr(torch, d)) for d in COMMON}
    point = {d: torch.empty((), dtype=getattr(torch, d)) for d in COMMON}
    for a, b in itertools.product(COMMON, COMMON):
        assert result_type([a, b]) == of_torch(torch.result_type, flat[a], flat[b]), (a, b)
        assert result_type([a], [b]) == of_torch(torch.result_type, flat[a], point[b]), (a, b)
        assert result_type([], [a, b]) == of_torch(torch.result_type, point[a], point[b]), (a, b)
    for a, (kind, number) in itertools.product(COMMON, NUMBERS.items()):
        assert result_type([a], [], [kind]) == of_torch(torch.result_type, flat[a], number), (a, kind)
        assert result_type([], [a], [kind]) == of_torch(torch.result_type, point[a], number), (a, kind)


def test_all_three_groups_at_once():
    for a, b in itertools.product(COMMON, COMMON):
        flat, point = torch.ones(2, dtype=getattr(torch, a)), torch.ones((), dtype=getattr(torch, b))
        assert result_type([a], [b]) == str((flat + point).dtype).removeprefix("torch.")


def test_nothing_gives_nothing():
    assert result_type([]) is None
