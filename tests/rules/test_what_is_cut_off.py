"""Numbers that are limited to what a narrower dtype holds, and then cast to it: cut off, or a mask's infinity."""

from __future__ import annotations

import programs
import pytest

_CAST = """
top = torch.finfo(torch.{dtype}).max
stored = (x / scale).clamp(-top, top).to(torch.{dtype})
print((stored.float() * scale).sum())
"""


def found(tmp_path, text):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert program.error is None
    return [(f.code, program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16"])
def test_what_does_not_fit_is_cut_off(dtype, tmp_path):
    made = f"scale = 1.0\nx = torch.randn(1000) * torch.finfo(torch.{dtype}).max * 2"
    assert found(tmp_path, made + _CAST.format(dtype=dtype)) == [
        ("DT308", f"stored = (x / scale).clamp(-top, top).to(torch.{dtype})")
    ]


@pytest.mark.parametrize(
    "made",
    [
        "x = 900 * torch.randn(1000)\nscale = x.abs().amax() / 448",
        "x = 900 * torch.randn(1000)\nscale = x.abs().quantile(0.999) / 448",
        "scale = 1.0\nx = torch.where(torch.rand(1000) < 0.5, -1e9, 0.0)",
        "scale = 1.0\nx = torch.where(torch.rand(1000) < 0.5, -1e4, 0.0) + torch.randn(1000)",
    ],
    ids=["scaled", "scaled without the largest", "a mask", "a mask with scores"],
)
def test_what_fits_and_what_is_a_mask(made, tmp_path):
    assert found(tmp_path, made + _CAST.format(dtype="float8_e4m3fn")) == []
