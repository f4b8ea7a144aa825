"""Masks that a program subtracts from 1: where ``~`` says the same, and where it does not."""

from __future__ import annotations

import programs
import pytest
from followed import follow

REPAIRED = {
    "a blend": ("m = x > 0.5\n    return x * (1 - m) + y * m", 1),
    "several masks": (
        "m, n = x > 0.5, y > 0.5\n    k = x < y\n    return k * (1 - m) * x + (1 - k) * y + (1 - n) * k * x",
        2,
    ),
    "cast afterwards": ("m = x > 0.5\n    return (1 - m).float().sum() + (1 - m).sum()", 2),
    "of an expression": ("return (1 - (x > 0.5)) * y + (1 - torch.isnan(y)) * x", 1),
    "a mask that fills": ("m = x > 0.5\n    return x.masked_fill(1 - m, 0.0) + torch.where(1 - m, x, y)", 2),
    "an index": ("m = x > 0.5\n    y[1 - m] = 0.0\n    return y + x[1 - m].sum()", 2),
    "an attribute": ("s.m = x > y\n    return (1. - s.m) * x", 1),
}
AS_BEFORE = {
    "truth values that are added": "m = x > 0.5\n    n = y > 0.5\n    return ((1 - m) * n + (1 - n) * m).float() * x",
    "another number": "m = x > 0.5\n    return (2 - m) * x",
    "a name for it": "m = x > 0.5\n    w = 1 - m\n    return w * x",
}


def program(body: str) -> str:
    return f"""
import types
s = types.SimpleNamespace()
def used(x, y):
    {body}
print(used(torch.rand(4, 4), torch.rand(4, 4)).sum().item())
"""


@pytest.mark.parametrize(("body", "edits"), REPAIRED.values(), ids=REPAIRED)
def test_a_mask_is_inverted_as_truth_values_are(body, edits, tmp_path):
    found = follow(tmp_path, program(body), rounds=2)
    assert found.clean and len(found.shown[0].edits) == edits, found.text
    assert "1 -" not in found.text and "1. -" not in found.text


@pytest.mark.parametrize("body", AS_BEFORE.values(), ids=AS_BEFORE)
def test_what_truth_values_do_not_say_is_cast(body, tmp_path):
    finding = programs.run(tmp_path, program(body)).findings[0]
    assert finding.kind == "collision" and not any("~" in edit.after for edit in finding.fix.edits)


OTHERWISE = {
    "numbers before": ("", "used(torch.rand(4), torch.ones(4))\nused(torch.rand(4), torch.ones(4) > 0)"),
    "numbers later": ("m = m.float()", "used(torch.rand(4), torch.ones(4) > 0)"),
}


@pytest.mark.parametrize(("between", "calls"), OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_numbers_in_another_call_or_line_is_not_inverted(between, calls, tmp_path):
    text = f"""
def used(x, m):
    first = x * (1 - m)
    {between or "pass"}
    return first + x * (1 - m)
{calls}
"""
    assert follow(tmp_path, text, rounds=2).clean
