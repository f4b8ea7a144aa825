"""What a change does op by op, on recordings made by hand."""

from __future__ import annotations

from recordings import RecordingBuilder

from dtypetrace.foresight import DtypeChange, Replay


def test_what_ran_in_the_recorded_run_is_not_forecast_as_refused():
    """The table may know an operator only with other arguments than the program's."""
    alone = RecordingBuilder()
    x, y = alone.made("float32"), alone.made("float32")
    alone.ran("mm", x, y, aten="mm.default")
    assert Replay(alone.recording, DtypeChange(births={x.event: "float16"})).ops[0].code

    seen = RecordingBuilder()
    x, y, half = seen.made("float32"), seen.made("float32"), seen.made("float16")
    seen.ran("mm", half, y, aten="mm.default", out="float16")
    seen.ran("mm", x, y, aten="mm.default")
    carried = Replay(seen.recording, DtypeChange(births={x.event: "float16"})).ops[1]
    assert (carried.code, carried.outputs) == ("", ("float16",))
