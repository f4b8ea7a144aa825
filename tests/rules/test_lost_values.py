"""Values that a write, a count, an average or a product loses, on recordings made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recordings import Made, RecordingBuilder

from dtypetrace import rules
from dtypetrace.records import Recording, Value

HALVES = ("float16", "bfloat16")


def kinds(recording: Recording) -> list[tuple[str, str]]:
    """Severity and kind of each finding."""
    return [(f.severity, f.kind) for f in rules.find(recording)]


def value(op: int, **more) -> Value:
    known = {"measured": 9, "made": 0, "first": -1, "made_nan": 0, "nans": 0, "bad": 0, "peak": 1.0}
    return Value(op=op, **{**known, **more})


def narrowed(after: str) -> Recording:
    """Data whose cast to float16 makes infinities; then ``after`` takes them, and a function makes them finite."""
    b = RecordingBuilder()
    data = b.made("float32", "conversion")
    cast = b.made("float16", "cast", of=data, explicit=True)
    small = b.ran("to", data, out="float16", aten="_to_copy.default", at=b.events[cast.event].place)
    small = replace(small, event=cast.event)
    scaled = b.ran("mul", small)
    weight = b.made("float16", "parameter").as_parameter("weight")
    taken = b.ran(after, scaled, weight, aten=f"{after}.default") if after == "mm" else b.ran(after, scaled)
    last = b.ran("tanh", taken)
    b.ran("sum", last)
    spread = [value(n, bad=1) for n in (scaled.producer, *([taken.producer] if after == "mm" else []))]
    return replace(b.recording, values=(value(small.producer, made=3, first=0, bad=3, peak=6e4), *spread))


def test_an_infinity_harms_where_a_product_spreads_it_and_not_where_a_softmax_takes_it():
    assert kinds(narrowed("mm")) == [("warning", "overflow")]
    assert kinds(narrowed("softmax")) == [("note", "overflow")]


@pytest.mark.parametrize(("made", "calls", "severity"), [(8, 8, "warning"), (3, 8, "note"), (2, 2, "note")])
def test_a_check_for_a_rare_infinity_that_is_there_in_every_step(made, calls, severity):
    """A loss scale that the program applies itself, in float16: it looks at the loss, and skips the step."""
    b = RecordingBuilder()
    scaled = b.ran("mul", b.made("float16", "cast", explicit=True), count=calls)
    b.ran("isfinite", scaled, out="bool", count=calls)
    b.ran("ones_like", scaled, phase="backward", count=calls)
    recording = replace(b.recording, values=(value(scaled.producer, made=made, first=0, bad=made),))
    assert kinds(recording) == [(severity, "overflow")]


def counted(dtype: str, count: int, op: str = "add_") -> Recording:
    b = RecordingBuilder()
    total, found = b.made(dtype, explicit=True), b.made("int64", "factory", "bincount")
    b.ran(op, total, found, aten=f"{op}.Tensor", count=count)
    return b.recording


@pytest.mark.parametrize("half", HALVES)
def test_counts_that_are_added_to_a_half_tensor_again_and_again(half):
    assert kinds(counted(half, 600)) == [("warning", "downcast")]


@pytest.mark.parametrize(
    ("dtype", "count", "op"), [("float16", 1, "add_"), ("float32", 600, "add_"), ("float16", 600, "copy_")]
)
def test_counts_that_are_stored_once_or_in_float32_are_no_finding(dtype, count, op):
    assert kinds(counted(dtype, count, op)) == []


def averaged(*ops: str) -> Recording:
    """A half average that float32 values are added to without any effect."""
    b = RecordingBuilder()
    mean, new = b.made("bfloat16", explicit=True), b.made("float32")
    made = {
        "mul_": b.ran("mul_", mean, aten="mul_.Tensor", count=150),
        "add_": b.ran("add_", mean, new, out="bfloat16", aten="add_.Tensor", count=150, same=True),
    }
    lost = (value(made[op].producer, due=900, done=0) for op in ops)
    return replace(b.recording, values=tuple(lost))


def test_an_average_whose_decay_is_lost_too_is_a_lost_update():
    assert kinds(averaged("mul_", "add_")) == [("warning", "lost-update")]


def test_a_sum_that_only_the_narrowing_write_changes_is_a_downcast():
    assert kinds(averaged("add_")) == [("warning", "downcast")]


def stored(computed: bool) -> Recording:
    """A half tensor, widened, and stored into another half tensor: as it is, or after something was computed."""
    b = RecordingBuilder()
    latents = b.made("float16", explicit=True)
    cast = b.made("float32", "cast", "float", of=latents, explicit=True)
    wide: Made = b.ran("float", latents, out="float32", aten="_to_copy.default", at=b.events[cast.event].place)
    wide = replace(wide, event=cast.event)
    wide = b.ran("log_softmax", wide) if computed else wide
    b.ran(
        "copy_",
        b.made("float16", "factory", "empty"),
        replace(wide, event=cast.event),
        out="float16",
        aten="copy_.default",
    )
    return b.recording


def test_what_was_computed_wide_is_not_a_copy_that_comes_back():
    assert kinds(stored(True)) == [("note", "downcast")]
    assert kinds(stored(False)) == []


def forked(beside: float, *, summed: bool = True) -> Recording:
    """A gradient that float16 flushes to zero where two branches meet, added to one of the size ``beside``."""
    b = RecordingBuilder()
    branch, other = b.made("float32", "input"), b.made("float16", "input")
    cast = b.ran("to", branch, out="float16", aten="_to_copy.default", phase="backward")
    total = (
        b.ran("add", cast, other, aten="add.Tensor", phase="backward")
        if summed
        else b.ran("mm", cast, other, aten="mm.default", phase="backward")
    )
    lost = value(cast.producer, nonzero=64, flushed=64, rows=8, lost_rows=8, peak=0.0)
    return replace(b.recording, values=(lost, value(total.producer, peak=beside)))


def test_a_gradient_that_is_flushed_beside_a_large_one_is_no_loss():
    assert kinds(forked(0.1)) == []
    assert kinds(forked(1e-6)) == [("warning", "underflow")], "beside small numbers it counts"
    assert kinds(forked(0.1, summed=False)) == [("warning", "underflow")], "what is multiplied by it is lost"


def outgrown(op: str, *, weights: str = "float16", weighted: bool = False) -> Recording:
    """A stream that is cast to float16 (line 2) goes through a model, in which one op makes infinities of it."""
    b = RecordingBuilder()
    small = b.made("float16", "cast", of=b.made("float32"), explicit=True)
    weight = b.made(weights, "parameter").as_parameter("weight")
    operands = (small, weight) if weighted else (small,)
    grown = b.ran(op, *operands, module="net.norm", out="float16")
    b.ran("mul", b.ran("rsqrt", grown, module="net.norm"), weight, module="net.norm", out="float16")
    made = value(grown.producer, made=2, first=0, bad=2, peak=3e3)
    return replace(b.recording, modules=("net", "net.norm"), values=(made,))


@pytest.mark.parametrize(("more", "line"), [({}, 4), ({"weights": "float32"}, 2), ({"weighted": True}, 3)])
def test_where_a_float16_model_computes_as_configured_the_op_that_outgrows_is_to_blame(more, line):
    (found,) = rules.find(outgrown("square", **more))
    assert (found.code, found.severity, found.culprit.origin.line) == ("DT301", "warning", line)


@pytest.mark.parametrize(
    ("op", "then", "severity"),
    [("index_add_", "exp", "warning"), ("sum", "exp", "warning"), ("sum", "clamp", "note"), ("square", "exp", "note")],
)
def test_a_sum_that_becomes_infinite_is_a_warning_unless_the_program_limits_it(op, then, severity):
    b = RecordingBuilder()
    total = b.ran(op, b.made("float16", "cast", explicit=True))
    b.ran("tanh", b.ran(then, b.ran("neg", total)))
    made = value(total.producer, made=2, first=0, bad=2)
    negative = value(total.producer + 1, bad=2)
    assert kinds(replace(b.recording, values=(made, negative))) == [(severity, "overflow")]


def moment(**more) -> Recording:
    """An optimizer of the program's own stores a second moment in float16 (born on line 1)."""
    b = RecordingBuilder()
    state, new = b.made("float16", "factory", "zeros", explicit=True), b.made("float32")
    if more.pop("held", False):
        state = state.as_parameter("weight")
    stored = b.ran("copy_", state, new, aten="copy_.default", phase=more.pop("phase", "optimizer"), count=60)
    measured = {"nonzero": 5000, "flushed": 1400, "lost_calls": 2, **more}
    return replace(b.recording, values=(value(stored.producer, **measured),))


def test_a_state_of_an_optimizer_that_becomes_zero_as_it_is_stored():
    assert kinds(moment()) == [("warning", "underflow")]


@pytest.mark.parametrize("other", [{"lost_calls": 1}, {"held": True}, {"phase": "forward"}])
def test_a_weight_or_a_single_call_is_judged_elsewhere(other):
    assert ("warning", "underflow") not in kinds(moment(**other))


@pytest.mark.parametrize("half", HALVES)
def test_a_total_is_born_where_it_is_made_like_another_tensor(half):
    """``bias.new_zeros(2)`` in a model that was cast after it was trained in float32."""
    b = RecordingBuilder()
    bias = b.made(half, "cast", explicit=True).as_parameter("bias")
    b.ran("linear", b.made("float32"), b.made("float32", "parameter").as_parameter("weight"), module="net")
    total = b.ran("new_zeros", bias, aten="new_zeros.default")
    line = len(b.lines)
    b.ran("add_", total, b.made("int64", "factory", "sum"), aten="add_.Tensor", count=400)
    (found,) = rules.find(b.recording)
    assert (found.kind, found.culprit.origin.line) == ("downcast", line)
