"""The tables' compact JSON decodes to the rows that went in; the timeline's shares are those of the ops."""

from __future__ import annotations

import re

import pytest
import recordings

from dtypetrace.render import census, listings, page_tables, timeline
from dtypetrace.tables.dtypes import FLOATING


def decoded(table: dict) -> list[list]:
    """The rows as the page's script reads them."""
    columns = []
    for group in table["groups"]:
        at, number = [], 0
        for difference in group["at"]:
            number += difference
            at.append(number)
        if "values" not in group:
            columns.append(at)
            continue
        for index, values in enumerate(group["values"]):
            if index == 0 and group["columns"][0][1] == "text":
                texts, text = [], ""
                for shared, rest in zip(values[::2], values[1::2]):
                    text = text[:shared] + rest
                    texts.append(text)
                values = texts
            columns.append([values[n] for n in at])
    return [list(row) for row in zip(*columns)]


def test_rows_come_back_as_they_went_in():
    recording, _ = recordings.many(700)
    rows = listings.ops(recording)
    table = next(t for t in page_tables.tables(recording, rows) if t["id"] == "ops")
    shown = decoded(table)
    assert len(shown) == table["rows"] == 700
    for reported, row in zip(shown, rows):
        assert (
            reported[0] == row.op
            and reported[1] == row.phase
            and reported[-1] == row.count
            and reported[5] == row.module
        )
        assert reported[6] == f"/p/train.py:{row.place.user_frame.line}" and reported[7].endswith(f":{row.place.line}")


def test_operators_are_those_of_the_census():
    recording, _ = recordings.many(700)
    table = next(t for t in page_tables.tables(recording, listings.ops(recording)) if t["id"] == "operators")
    rows = census.operators(recording)
    labels = [label for g in table["groups"] for label, _ in g["columns"]]
    assert labels == ["op", "phase", "float32", "bfloat16", "float16", "others"]
    assert [tuple(row) for row in decoded(table)] == [(r.op, r.phase, r.f32, r.bf16, r.f16, r.other) for r in rows]


def test_entries_are_sorted_so_that_their_numbers_sort():
    recording, _ = recordings.many(4000)
    table = next(t for t in page_tables.tables(recording, listings.ops(recording)) if t["id"] == "ops")
    (lines,) = [g for g in table["groups"] if g["columns"][0][0] == "your line"]
    numbers = [int(re.search(r"\d+$", row[6])[0]) for row in decoded(table)]
    at, number = {}, 0
    for difference, line in zip(lines["at"], numbers):
        number += difference
        at[number] = line
    assert [line for _, line in sorted(at.items())] == sorted(set(numbers))


@pytest.mark.parametrize("dtype", sorted(FLOATING))
def test_every_floating_dtype_has_a_colour(dtype):
    assert listings.family(dtype) in timeline.NAMES and listings.family(dtype) not in ("", "other")


def test_a_strip_s_shares_are_those_of_its_ops():
    recording, _ = recordings.many(1000)
    rows = listings.ops(recording)
    for strip in timeline.strips(rows):
        own = [r for r in rows if r.phase == strip.phase]
        assert strip.ops == len(own) and strip.calls == sum(r.count for r in own)
        for family, share in strip.shares:
            assert share == round(100 * sum(listings.family(r.outputs[0]) == family for r in own) / len(own))


def test_the_bars_fill_their_strip():
    recording, _ = recordings.many(1000)
    for strip in timeline.strips(listings.ops(recording)):
        area = sum(
            int(w) * int(h) for w, h in re.findall(r"h(\d+)v(\d+)h-\d+z", strip.drawing.partition('class="tick"')[0])
        )
        assert area == 200 * 40
        assert len(strip.drawing) < 20_000
