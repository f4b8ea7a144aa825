"""Which lines of a program ran under autocast."""

from __future__ import annotations

from recordings import RecordingBuilder

from dtypetrace.compare.contract import regions
from dtypetrace.render import contracts


def lines(b: RecordingBuilder) -> list[tuple[str, int, int]]:
    return [(r.autocast, r.first, r.last) for r in regions(b.recording)]


def test_neighbouring_lines_are_one_region_and_a_line_outside_divides():
    b = RecordingBuilder()
    x = b.made("float32")
    for on in ("", "cpu:bfloat16", "cpu:bfloat16", "", "cpu:bfloat16", "cpu:float16"):
        x = b.ran("linear", x, autocast=on)
    assert lines(b) == [("cpu:bfloat16", 3, 4), ("cpu:bfloat16", 6, 6), ("cpu:float16", 7, 7)]


def test_a_line_that_also_ran_without_is_in_no_region():
    b = RecordingBuilder()
    x = b.made("float32")
    b.ran("linear", x, autocast="cpu:bfloat16")
    b.ran("linear", x, at=b.ops[0].place)
    assert lines(b) == []


def test_a_factory_without_operands_says_nothing_about_autocast():
    b = RecordingBuilder()
    x = b.made("float32")
    b.ran("linear", x, autocast="cpu:bfloat16")
    b.ran("arange", at=b.ops[-1].place)
    assert lines(b) == [("cpu:bfloat16", 2, 2)]


def test_the_outermost_line_that_is_inside_counts():
    """``train`` calls the model under autocast; the lines of the model's own forward are inside it."""
    b = RecordingBuilder()
    x = b.made("float32")
    call = b.line("loss = «model(x)»")
    for inner in ("return «self.layer(x)»", "return «self.act(x)»"):
        b.ran("linear", x, autocast="cpu:bfloat16", at=b.line(inner, below=call))
    assert lines(b) == [("cpu:bfloat16", 2, 2)]
    assert contracts.regions(regions(b.recording)) == "\n# autocast cpu:bfloat16: line 2 of /p/train.py\n"


def test_backward_is_in_no_region():
    b = RecordingBuilder()
    b.ran("mm", b.made("float32"), autocast="cpu:bfloat16", phase="backward")
    assert lines(b) == []
