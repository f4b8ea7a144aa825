"""The frames: their columns are the documented ones, and they sort and group."""

from __future__ import annotations

import re

import programs
import pytest

from dtypetrace.records import Recording
from dtypetrace.render import frames

STEP = """
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.ones(2, 4))
    loss = (out.float() - torch.ones(2, 1, dtype=torch.float64)).square().mean()
    loss.backward()
    optimizer.step()
there = torch.ones(3).half()
back = there.view(3, 1).float()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return programs.run(tmp_path_factory.mktemp("frames"), STEP)


@pytest.mark.parametrize("of", list(frames._FRAMES))
def test_the_documented_columns_are_there_with_rows_and_without(program, of):
    reported = re.search(rf"``{of}``(.*?)\n\n", frames.frame.__doc__ + "\n\n", re.S)[1].partition(":")[2]
    reported = re.sub(r"\(.*?\)", "", reported, flags=re.S)
    full, empty = program.trace.to_dataframe(of), frames.frame(Recording(), of)
    for frame in (full, empty):
        for column in frame.columns:
            assert re.search(rf"\b{column}\b", reported), column
    assert list(full.dtypes.map(str)) == list(empty.dtypes.map(str))
    assert len(empty) == 0


def test_another_name_is_reported_which_there_are(program):
    with pytest.raises(ValueError, match="there is no frame of 'op'; there are ops, casts, parameters, gradients"):
        program.trace.to_dataframe("op")


def test_ops_group_by_phase_in_the_order_of_a_step(program):
    frame = program.trace.to_dataframe()
    assert list(frame.groupby("phase", observed=True)["count"].sum().index) == [
        "forward",
        "backward",
        "optimizer",
        "other",
    ]
    assert frame["count"].sum() == program.recording.meta["ops"]
    assert frame.index.name == "number" and list(frame.index) == list(range(len(program.recording.ops)))


def test_promotions_and_casts_are_distinguished(program):
    frame = program.trace.to_dataframe()
    widened = frame[frame.change == "promotion"]
    assert (
        set(widened.op) == {"sub"}
        and set(widened.inputs) == {"float32, float64"}
        and set(widened.output) == {"float64"}
    )
    assert set(widened.user_line) == {program.line("loss = ")} and set(widened["count"]) == {2}
    assert {"cast", "autocast"} <= set(frame.change)


def test_the_ledger_says_what_went_there_and_back(program):
    casts = program.trace.to_dataframe("casts")
    back = casts[casts.user_line == program.line("back = ")]
    assert [tuple(r) for r in back[["from_dtype", "to_dtype", "round_trip"]].values] == [("float16", "float32", True)]
    there = casts[casts.user_line == program.line("there = ")]
    assert list(there.round_trip) == [False] and list(there["bytes"]) == [6] and list(back["bytes"]) == [12]


def test_a_cast_back_after_something_was_computed_is_no_round_trip(tmp_path):
    casts = programs.run(tmp_path, "x = torch.ones(3).half() * 2\ny = x.float()").trace.to_dataframe("casts")
    assert list(casts.round_trip) == [False, False]


def test_parameters_add_up(program):
    frame = program.trace.to_dataframe("parameters")
    assert frame["size"].sum() == 4 * 8 + 8 + 8 + 1 and frame["bytes"].sum() == 4 * frame["size"].sum()
    assert list(frame.loc["model.0.weight", ["module", "dtype", "origin"]]) == ["model.0", "float32", "parameter"]


def test_gradients_show_what_the_steps_met_and_did(tmp_path):
    text = """
        model = nn.Linear(4, 1).bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
        for _ in range(2):
            model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
    """
    frame = programs.run(tmp_path, text, numerics=True).trace.to_dataframe("gradients")
    weight = frame.loc["weight"]
    assert weight["dtype"] == "bfloat16" and weight["optimizer"] == "SGD" and weight["steps"] == 2
    assert (
        weight["moved"] == 0.0
        and weight["gradient_dtype"] == "bfloat16"
        and not weight["differs"]
        and weight["peak"] == 4.0
    )


def test_a_saved_trace_gives_the_same_frames(program, tmp_path):
    import dtypetrace

    program.trace.save(tmp_path / "t.trace")
    for of in frames._FRAMES:
        assert dtypetrace.load(tmp_path / "t.trace").to_dataframe(of).equals(program.trace.to_dataframe(of))
