"""The order of findings about values: what a trial of a result shows, then what spoils or keeps most."""

from __future__ import annotations

from functools import partial

import pytest

from dtypetrace.records import Finding, Place, Tried
from dtypetrace.rules.findings import _order


def found(code: str, kind: str, unit: str = "", phase: str = "forward", count: int = 1,
          before: float = 0.5) -> Finding:  # fmt: skip
    """A warning; ``unit``: of the damage that a trial shows to come from it, ``before``: how large that is."""
    tried = Tried("mean", Place(()), before, 0.0, unit) if unit else None
    return Finding(code, kind, "warning", code, phase, "mul", None, "", count, False, Place(()), (), None, (), None, None,
                   tried=tried)  # fmt: skip


PAIRS = {
    "an infinity, and zeros that a cast makes": (found("DT301", "overflow"), found("DT302", "underflow", "spoilt")),
    "an infinity, and zeros": (found("DT301", "overflow"), found("DT302", "underflow", count=9)),
    "zeros that spoil a result, and an infinity": (found("DT302", "underflow", "error"), found("DT301", "overflow")),
    "zeros that spoil a result, and a setting": (found("DT302", "underflow", "error"), found("DT401", "plan")),
    "a setting, and zeros that a cast makes": (found("DT401", "plan"), found("DT302", "underflow", "spoilt")),
    "a merge, and what is rounded": (found("DT307", "lost-update", "still"), found("DT308", "precision-loss", "error")),
    "zeros, and a merge": (found("DT302", "underflow", "spoilt"), found("DT307", "lost-update", "still")),
    "what is rounded, and what may be": (found("DT308", "precision-loss"), found("DT505", "stagnation", count=9)),
    "whole numbers, and one rounding": (
        found("DT203", "downcast", "spoilt"),
        found("DT203", "downcast", "error", count=9, before=2e-4),
    ),
    "a result that is off, and one rounding": (
        found("DT308", "precision-loss", "error"),
        found("DT203", "downcast", "error", count=9, before=2e-3),
    ),
    "what nobody tried, and one rounding": (
        found("DT203", "downcast"),
        found("DT203", "downcast", "error", count=9, before=2e-4),
    ),
    "a sum, and what may stand still": (found("DT307", "lost-update", "error"), found("DT505", "stagnation", count=9)),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turned", [False, True])
def test_the_first_of_two(pair, turned):
    first, second = PAIRS[pair]
    given = [second, first] if turned else [first, second]
    assert sorted(given, key=partial(_order, {})) == [first, second]


def test_in_the_backward_pass_zeros_are_not_shown_to_spoil_a_result():
    zeros = found("DT302", "underflow", "error", phase="backward")
    assert sorted([zeros, found("DT401", "plan")], key=partial(_order, {}))[0].code == "DT401"
