"""A variance as a difference of two large squares, on recordings made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recordings import RecordingBuilder

from dtypetrace import rules
from dtypetrace.records import Recording, Value


def variance(*, left: float = 100.0, of: str = "square", then: str = "sqrt", dtype: str = "float32") -> Recording:
    b = RecordingBuilder()
    x = b.made(dtype)
    squares = b.ran("mean", b.ran(of, x, aten=f"{of}.default"), aten="mean.dim")
    mean = b.ran("square", b.ran("mean", x, aten="mean.dim"), aten="square.default")
    less = b.ran("sub", squares, mean, aten="sub.Tensor")
    b.ran(then, b.ran("clamp", less, aten="clamp.default"), aten=f"{then}.default")
    sizes = {squares.producer: 4e8, mean.producer: 4e8, less.producer: left}
    rows = [Value(n, measured=1, made=0, first=-1, made_nan=0, nans=0, bad=0, peak=p) for n, p in sizes.items()]
    return replace(b.recording, values=tuple(rows))


def codes(recording: Recording) -> list[str]:
    return [f.code for f in rules.find(recording) if f.severity != "note"]


@pytest.mark.parametrize("then", ["sqrt", "rsqrt", "log"])
def test_a_difference_that_is_mostly_rounding(then):
    recording = variance(then=then)
    assert codes(recording) == ["DT308"]
    (found,) = rules.find(recording)
    assert found.op == "sub" and found.culprit.origin.place == found.site, "no dtype is to blame, but this line"


@pytest.mark.parametrize("other", [{"left": 1e5}, {"left": 0.0}, {"of": "exp"}, {"then": "abs"}, {"dtype": "float64"}])
def test_differences_with_digits_left_or_that_nothing_depends_on(other):
    assert codes(variance(**other)) == []


def test_running_means_of_numbers_and_of_their_squares():
    b = RecordingBuilder()
    x, kept = b.made("float32"), b.made("float32")
    towards = b.ran("div", b.ran("sub", b.ran("mean", b.ran("square", x, aten="square.default")), kept))
    squares = b.ran("add_", kept, towards, aten="add_.Tensor")
    mean = b.ran("square", b.ran("mean", x, aten="mean.dim"), aten="square.default")
    less = b.ran("sub", squares, mean, aten="sub.Tensor")
    b.ran("sqrt", less, aten="sqrt.default")
    sizes = {squares.producer: 1.6e7, mean.producer: 1.6e7, less.producer: 1.0}
    rows = [Value(n, measured=1, made=0, first=-1, made_nan=0, nans=0, bad=0, peak=p) for n, p in sizes.items()]
    assert codes(replace(b.recording, values=tuple(rows))) == ["DT308"]
