"""A retraining: which losses the eye could tell apart, and the headline above them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dtypetrace.lora.verdict import AdapterInRun, AdapterVerdict, Retraining, TrainingRun
from dtypetrace.render import retraining

NAN = float("nan")
FALLING = tuple(1 - n / 10 for n in range(8))
FLAT = (1.0, 0.9) * 4


def result(before, after, untrained=FLAT) -> Retraining:
    runs = [
        TrainingRun(label, dtype, tuple(losses), 0, 1.0, "")
        for label, dtype, losses in (("as they are", "float16", before), ("in float32", "float32", after))
    ]
    return Retraining((), *runs, tuple(untrained), "AdamW", "float16", len(after))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (FLAT, FLAT, True),
        (FLAT, [v - 1e-4 for v in FLAT], True),
        (FLAT, FALLING, False),
        ((1.0, *[NAN] * 7), FALLING, False),
        ((1.0, *[NAN] * 7), [v - 1e-4 for v in FLAT], True),
        ((), FALLING, False),
    ],
)
def test_curves_coincide_where_they_are_closer_than_a_line_is_wide(before, after, same):
    assert retraining.coincide(result(before, after)) is same


def test_nothing_is_confirmed_above_curves_that_coincide():
    near, apart = result(FLAT, [v - 1e-4 for v in FLAT]), result(FLAT, FALLING)
    assert near.confirmed and apart.confirmed
    assert retraining.headline(near).endswith(
        "over 8 steps the loss curve looks the same as with the adapters as they are"
    )
    assert retraining.headline(apart) == "Confirmed: in float32 the adapters learn"


def test_the_text_says_the_same():
    side = AdapterInRun("float32", "healthy", (), 1.0, 0.0, 0.0, 0.0, 1.0, 1e-4, 1e-9, ())
    adapter = AdapterVerdict("up", side, side)
    for shown, seen in ((result(FLAT, [v - 1e-4 for v in FLAT]), False), (result(FLAT, FALLING), True)):
        shown = replace(shown, adapters=(adapter,))
        text = retraining.text(shown)
        assert ("onfirmed: in float32 the adapters learn" in text) is seen
        assert ("the loss curve looks the same as with" in text) is not seen
        assert ("the one adapter learns" in text) is seen


def test_adapters_that_learn_as_they_are_are_compared_with_untrained_ones():
    side = AdapterInRun("float32", "healthy", (), 1.0, 0.0, 0.0, 0.0, 1.0, 1e-4, 1e-9, ())
    shown = replace(result(FALLING, FALLING), adapters=(AdapterVerdict("up", side, side),))
    assert retraining.headline(shown) == "Confirmed: in float32 the adapters learn"
