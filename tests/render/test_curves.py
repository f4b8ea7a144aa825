"""The curves of a retraining: what the eye can tell apart, and the headline above them."""

from __future__ import annotations

import xml.etree.ElementTree as xml

import pytest

from dtypetrace.lora.verdict import Retraining, TrainingRun
from dtypetrace.render import curves, retraining

NAN = float("nan")
FALLING = tuple(1 - n / 10 for n in range(8))
FLAT = (1.0, 0.9) * 4


def result(before, after, untrained=FLAT) -> Retraining:
    runs = [
        TrainingRun(label, dtype, tuple(losses), (1e-4,) * len(losses), 1e-5, 0, 1.0, "")
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
    assert curves.coincide(result(before, after)) is same


def test_nothing_is_confirmed_above_curves_that_coincide():
    near, apart = result(FLAT, [v - 1e-4 for v in FLAT]), result(FLAT, FALLING)
    assert near.confirmed and apart.confirmed
    assert retraining.page_headline(near).endswith("8 steps are too few to see it in the loss")
    assert retraining.page_headline(apart) == retraining.headline(apart)


def test_the_difference_of_the_losses_has_a_picture_of_its_own():
    near = [v - 1e-4 * n for n, v in enumerate(FLAT)]
    *_, third = curves.panels(result(FLAT, near))
    drawn = xml.fromstring(third)
    lines = [
        [tuple(map(float, p.split(","))) for p in x.get("points").split()] for x in drawn.iter() if x.get("points")
    ]
    assert len(lines) == 2 and all(line[-1][1] - line[0][1] > 100 for line in lines), "it uses the whole height"
    assert "minus as they are, float16" in "".join(drawn.itertext()) and "no difference" in "".join(drawn.itertext())
    assert len(curves.panels(result((NAN,) * 8, FALLING, (NAN,) * 8))) == 2
