"""The tables' compact JSON decodes to the rows that went in; the timeline's shares are those of the ops."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import recordings

from dtypetrace.records import Input, Op, Recording, Refused
from dtypetrace.render import census, listings, page_tables, timeline
from dtypetrace.tables.dtypes import FLOATING


def decoded(table: dict) -> list[list]:
    """The rows as the page's script reads them."""
    columns = [[c["values"][n] for n in c["at"]] if "values" in c else c["at"] for c in table["columns"]]
    return [list(row) for row in zip(*columns)]


def test_rows_come_back_as_they_went_in():
    recording, _ = recordings.many(700)
    rows = listings.ops(recording)
    table = next(t for t in page_tables.tables(recording, rows) if t["id"] == "ops")
    shown = decoded(table)
    assert len(shown) == table["rows"] == 700
    labels = [c["label"] for c in table["columns"]]
    for reported, row in zip((dict(zip(labels, cells)) for cells in shown), rows):
        assert (reported["op"], reported["phase"], reported["module"]) == (row.op, row.phase, row.module)
        assert reported["calls"] == row.count and reported["library line"].endswith(f":{row.place.line}")
        assert reported["your line"] == f"/p/train.py:{row.place.user_frame.line}"


def test_operators_are_those_of_the_census():
    recording, _ = recordings.many(700)
    table = next(t for t in page_tables.tables(recording, listings.ops(recording)) if t["id"] == "operators")
    rows = census.operators(recording)
    labels = [c["label"] for c in table["columns"]]
    assert labels == ["op", "phase", "float32", "bfloat16", "float16", "others"]
    assert [tuple(row) for row in decoded(table)] == [(r.op, r.phase, r.f32, r.bf16, r.f16, r.other) for r in rows]


def test_entries_are_sorted_so_that_their_numbers_sort():
    recording, _ = recordings.many(4000)
    table = next(t for t in page_tables.tables(recording, listings.ops(recording)) if t["id"] == "ops")
    (lines,) = [c for c in table["columns"] if c["label"] == "your line"]
    at = {n: int(re.search(r"\d+$", lines["values"][n])[0]) for n in lines["at"]}
    numbers = at.values()
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


def test_the_strips_have_one_axis_and_bars_where_their_phase_has_ops():
    recording, _ = recordings.many(1000)
    rows = listings.ops(recording)
    filled = 0
    for strip in timeline.strips(rows):
        bars = re.findall(r"M(\d+) \d+h(\d+)v(\d+)h-\d+z", strip.drawing.partition('class="tick"')[0])
        area = sum(int(w) * int(h) for _, w, h in bars)
        own = {r.number // 5 for r in rows if r.phase == strip.phase}
        assert area == len(own) * 40 and {int(x) for x, *_ in bars} <= own
        filled += len(own)
        assert len(strip.drawing) < 20_000
    assert 200 <= filled <= 204, "phases follow each other on the axis"


def test_what_ran_before_the_first_module_is_init():
    ops = (result(phase="other"), result(), replace(result(), module="net"), result(phase="other"))
    shown = timeline.strips(listings.ops(Recording(ops=ops)))
    assert [(s.phase, s.ops) for s in shown] == [("init", 1), ("outside", 1), ("forward", 2)]
    shown = timeline.strips(listings.ops(Recording(ops=ops[:2])))
    assert [s.phase for s in shown] == ["outside", "forward"], "no module ran"


def result(*producers: int, phase: str = "forward", dtype: str = "float16", effect: str = "new") -> Op:
    inputs = tuple(Input(dtype, producer=n) for n in producers)
    return Op("mul", "mul.Tensor", phase, "", 0, inputs, (dtype,), 1, shape=(10,), effect=effect)


def test_bytes_live_until_their_last_use_through_views():
    ops = (
        result(),  # 0: used by its view's user, op 3
        result(0, effect="view"),
        result(dtype="float32"),  # used by the backward op
        result(1),
        result(2, 3, phase="backward", dtype="float32"),
        result(),  # nothing uses it
    )
    most, at = timeline._most_by_column(Recording(ops=ops), 6)
    assert [dict(+counted) for counted in most] == [
        {"f16": 20},
        {"f16": 20},
        {"f16": 20, "f32": 40},
        {"f16": 40, "f32": 40},
        {"f16": 20, "f32": 40},
        {},
    ]
    shown = timeline.timeline(Recording(ops=ops), listings.ops(Recording(ops=ops)))
    assert shown.live_words == "at most 80 B (40 B float16, 40 B float32), at op 3"
    assert timeline.timeline(*bare_timeline()).live == ""


def bare_timeline():
    recording, _ = recordings.many(40)
    return recording, listings.ops(recording)


def test_a_refused_call_is_marked_where_it_was_refused():
    recording, rows = bare_timeline()
    f = recordings.finding()
    refused = Refused("linear", None, "forward", "", 0, (), "RuntimeError", "", "", "DT101", "agree", after=10)
    own = replace(recording, places=(f.site, *recording.places[1:]), refused=(refused,))
    (mark,) = timeline.timeline(own, rows, [("DT101-1", f), ("DT101-2", f)]).marks
    assert (mark.anchor, mark.at, mark.more) == ("DT101-1", 25.0, 1)
    nowhere = replace(recording, refused=())
    assert timeline.timeline(nowhere, rows, [("DT401-1", recordings.bare("plan"))]).marks == []


def test_each_step_shows_the_ops_that_ran_in_it():
    ops = (*(result() for _ in range(10)), *(replace(result(), module="net") for _ in range(90)))
    ends = ((1, 60, 1, 1, 0, 60), (2, 80, 3, 2, 20, 80), (7, 100, 90, 4, 20, 40, 80, 100))
    lanes = lambda recording: timeline.step_lanes(recording, listings.ops(recording))
    assert [(lane.label, lane.ops, lane.ran) for lane in lanes(Recording(ops=ops, step_ends=ends))] == [
        ("step 1", 50, "10-59"),
        ("steps 2 to 3", 60, "20-79"),
        ("4 steps, 7 to 90", 40, "20-39 80-99"),
    ]
    assert lanes(Recording(ops=ops)) == [] == lanes(Recording(ops=ops, step_ends=((1, 60),))), "an older trace"
