"""The table of dtypes says what torch says."""

from __future__ import annotations

import pytest
import torch

from dtypetrace.tables import dtypes, refusals
from dtypetrace.tables.dtypes import DTYPES

BY_NAME = {name: getattr(torch, name) for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)}
NO_NUMBERS = {"bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"}


def test_every_dtype_of_torch_is_in_the_table():
    assert {str(d).removeprefix("torch.") for d in BY_NAME.values()} - NO_NUMBERS == set(DTYPES)


@pytest.mark.parametrize("name", DTYPES)
def test_width_and_kind_are_those_of_torch(name):
    dtype, known = BY_NAME[name], DTYPES[name]
    assert known.bytes == dtype.itemsize
    assert (known.kind == "float", known.kind == "complex") == (dtype.is_floating_point, dtype.is_complex)
    assert (name in dtypes.FLOATING) == (dtype.is_floating_point or dtype.is_complex)


@pytest.mark.parametrize("name", sorted(dtypes.FLOATING - {"float4_e2m1fn_x2"}))
def test_range_and_precision_are_those_of_finfo(name):
    facts, known = torch.finfo(BY_NAME[name]), DTYPES[name]
    assert (known.lowest, known.largest, known.smallest_normal) == (facts.min, facts.max, facts.smallest_normal)
    if name != "float8_e5m2fnuz":  # torch.finfo says 0.125; the test below shows that 1.125 is no number of it
        assert known.eps == facts.eps
    assert known.bits // (2 if known.kind == "complex" else 1) == facts.bits


@pytest.mark.parametrize("name", sorted(dtypes.REAL - {"float64", "float4_e2m1fn_x2"}))
def test_digits_and_smallest_number_are_those_of_conversions(name):
    known, back = DTYPES[name], lambda *x: torch.tensor(x, dtype=torch.float64).to(BY_NAME[name]).double().tolist()
    assert back(known.smallest, known.largest, 1 + known.eps) == [known.smallest, known.largest, 1 + known.eps]
    assert back(1 + known.eps * 0.51)[0] in (1.0, 1 + known.eps)
    if name != "float8_e8m0fnu":  # has no zero
        assert back(known.smallest / 4) == [0.0]


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.kind in ("integer", "quantised") and d.bits >= 8])
def test_range_of_integers_is_that_of_iinfo(name):
    facts, known = torch.iinfo(BY_NAME[name]), DTYPES[name]
    assert (known.lowest, known.largest, known.bits) == (facts.min, facts.max, facts.bits)


def test_complex_dtypes_and_their_parts_point_at_each_other():
    for name in dtypes.COMPLEX:
        part = DTYPES[name].counterpart
        assert BY_NAME[part] is BY_NAME[name].to_real()
        assert DTYPES[part].counterpart == name


@pytest.mark.parametrize("name", sorted(dtypes.STORAGE_ONLY & dtypes.REAL))
def test_no_sum_is_computed_in_a_storage_dtype(name):
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.empty(2, dtype=BY_NAME[name]) + torch.empty(2, dtype=BY_NAME[name])


def test_wider_compares_floating_dtypes_alone():
    assert dtypes.wider("float32", "float16") and dtypes.narrower("float8_e5m2", "bfloat16")
    assert not dtypes.wider("bfloat16", "float16") and not dtypes.wider("int64", "float16")
    assert not dtypes.narrower("float16", None) and not dtypes.wider("python float", "float16")


def test_every_dtype_that_a_message_may_name_is_in_the_table():
    assert set(map(refusals.canonical, refusals._TYPE_NAMES)) <= set(DTYPES)
