"""Losses that spot checks measured, on recordings made by hand: which of them are warnings, and which line is blamed."""

from __future__ import annotations

from dataclasses import replace

from recordings import Made, RecordingBuilder

from dtypetrace import rules
from dtypetrace.records import Finding, Precision, Recording


def precision(op: int, **more) -> Precision:
    known = {
        "calls": 2, "elements": 64, "size": 1.0, "introduced": 0.0, "total": 0.0, "lost": 0.0, "lost_in_all": 0.0,
        "flushed": 0.0, "infinite": 0, "spoiled": 0, "lost_calls": 0,
    }  # fmt: skip
    return Precision(op=op, **{**known, **more})


def warnings(recording: Recording) -> list[Finding]:
    return [f for f in rules.find(recording) if f.severity == "warning"]


def said(recording: Recording) -> list[tuple[str, int]]:
    """Kind and line of birth of each warning."""
    return [(f.kind, f.culprit.origin.line) for f in warnings(recording) if f.culprit is not None]


def cast(b: RecordingBuilder, dtype: str = "float16") -> Made:
    """A float32 value and its cast, as an event and as an op."""
    wide = b.made("float32", "conversion")
    small = b.made(dtype, "cast", of=wide, explicit=True)
    made = b.ran("to", wide, out=dtype, aten="_to_copy.default", at=b.events[small.event].place)
    return replace(made, event=small.event)


def centred(total: float, *, dtype: str = "float16") -> Recording:
    """Coordinates that are cast (line 2), then centred and read."""
    b = RecordingBuilder()
    small = cast(b, dtype)
    offset = b.ran("sub", small, small)
    b.ran("item", offset, out="", aten="_local_scalar_dense.default")
    checks = (precision(small.producer, introduced=3e-4, total=3e-4), precision(offset.producer, total=total))
    return replace(b.recording, spot_checks=checks)


def test_a_difference_that_loses_what_a_cast_rounded_blames_the_cast():
    assert said(centred(0.9)) == [("precision-loss", 2)]


def test_a_smaller_loss_is_no_warning():
    assert said(centred(0.2)) == []


def test_a_loss_in_float32_counts_where_nothing_was_in_16_bits():
    def read(*, narrow: bool) -> Recording:
        b = RecordingBuilder()
        given = cast(b) if narrow else b.made("float32", "conversion")
        wide = b.ran("float", given, out="float32", aten="_to_copy.default") if narrow else given
        offset = b.ran("sub", wide, wide)
        b.ran("item", offset, out="", aten="_local_scalar_dense.default")
        return replace(b.recording, spot_checks=(precision(offset.producer, introduced=0.9, total=0.9, lost=0.9),))

    assert [kind for kind, _ in said(read(narrow=False))] == ["precision-loss"]
    assert said(read(narrow=True)) == []


def test_only_the_first_of_two_losses_on_one_way_is_shown():
    b = RecordingBuilder()
    small = cast(b)
    offset = b.ran("sub", small, small)
    again = b.ran("sub", offset, b.ran("mul", offset, b.made("float16", explicit=True)))
    for each in (offset, again):
        b.ran("item", each, out="", aten="_local_scalar_dense.default")
    checks = (
        precision(small.producer, introduced=3e-4, total=3e-4),
        precision(offset.producer, total=0.9),
        precision(again.producer, total=4.0, introduced=3.0, lost=0.9, lost_in_all=0.9),
    )
    assert said(replace(b.recording, spot_checks=checks)) == [("precision-loss", 2)]


def test_numbers_that_vanish_a_few_at_a_time_in_a_loop_are_an_underflow():
    """No round loses most of what is lost, and what is left has ordinary errors: the rest was too small."""
    b = RecordingBuilder()
    small = cast(b)
    path = b.ran("mul", small, small, count=23)
    total = b.ran("sum", path)
    b.ran("item", total, out="", aten="_local_scalar_dense.default")
    checks = (
        precision(small.producer, introduced=2e-4, total=2e-4),
        precision(path.producer, total=3e-4, lost=0.2, lost_in_all=0.7, flushed=0.2, lost_calls=1),
        precision(total.producer, size=1e-23, total=1.0, lost_in_all=1.0, lost_calls=2),
    )
    assert said(replace(b.recording, spot_checks=checks)) == [("underflow", 2)]


def test_what_another_rule_found_on_that_line_is_not_said_again():
    b = RecordingBuilder()
    total, count = b.made("float16", explicit=True), b.made("int64", "factory", "bincount")
    added = b.ran("add_", total, count, aten="add_.Tensor", count=600)
    b.ran("item", added, out="", aten="_local_scalar_dense.default")
    checked = (precision(added.producer, total=0.9, introduced=0.9, lost=0.9, lost_in_all=0.9),)
    assert said(replace(b.recording, spot_checks=checked)) == said(b.recording) == [("downcast", 1)]


def test_a_reference_of_the_whole_run_leaves_nothing_to_spot_checks():
    recording = centred(0.9)
    whole = tuple(replace(p, total=0.0, introduced=0.0) for p in recording.spot_checks)
    assert said(replace(recording, precisions=whole)) == []


def test_a_loss_that_enters_a_model_counts():
    def fed(*, module: str) -> Recording:
        b = RecordingBuilder()
        small = cast(b)
        offset = b.ran("sub", small, small)
        b.ran("relu_backward", b.ran("relu", offset, module=module), phase="backward")
        checks = (precision(small.producer, introduced=3e-4, total=3e-4), precision(offset.producer, total=0.9))
        return replace(b.recording, spot_checks=checks)

    assert said(fed(module="net")) == [("precision-loss", 2)]
    assert said(fed(module="")) == []


def test_in_float32_too_the_birth_is_named_where_no_model_computes_in_it():
    b = RecordingBuilder()
    given = b.made("float32", "conversion")
    total = b.ran("cumsum", given)
    window = b.ran("sub", total, total)
    centred_ = b.ran("sub", window, window)
    b.ran("item", centred_, out="", aten="_local_scalar_dense.default")
    checks = (
        precision(total.producer, introduced=3e-8, total=3e-8),
        precision(window.producer, total=1e-3),
        precision(centred_.producer, total=0.9),
    )
    recording = replace(b.recording, spot_checks=checks)
    line = recording.places[recording.events[given.event].place].stack[0].line
    assert said(recording) == [("precision-loss", line)]


def test_what_a_call_followed_comes_before_the_operands_of_the_first_call():
    b = RecordingBuilder()
    fine, small = b.ran("sin", b.made("float16", "conversion")), cast(b)
    offset = b.ran("sub", fine, fine)
    b.ran("item", offset, out="", aten="_local_scalar_dense.default")
    checks = (
        precision(fine.producer, introduced=3e-4, total=3e-4),
        precision(small.producer, introduced=5e-4, total=5e-4),
        precision(offset.producer, total=0.9, above=(small.producer,)),
    )
    birth = b.recording.places[b.recording.ops[small.producer].place].stack[0].line
    assert said(replace(b.recording, spot_checks=checks)) == [("precision-loss", birth)]
