"""What a change does op by op, on recordings made by hand."""

from __future__ import annotations

from dataclasses import replace

from recordings import Made, RecordingBuilder

from dtypetrace.foresight import DtypeChange, Replay, given_again, refused_with
from dtypetrace.records import Read
from dtypetrace.tables.rule_language import Gives, Refuses


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


def results(builder: RecordingBuilder, **births: str) -> list[tuple[str, ...]]:
    """What each op gives after a change of births, by event: ``e0="int64"``."""
    change = DtypeChange(births={int(event[1:]): dtype for event, dtype in births.items()})
    return [carried.outputs for carried in Replay(builder.recording, change).ops]


def test_integers_are_carried():
    """An integer is promoted like a number of its kind, also with a Python number, which is not recorded."""
    b = RecordingBuilder()
    number = b.made("int32", shape=(4,))
    b.ran("add", b.ran("mul", number, aten="mul.Tensor"), number, aten="add.Tensor")
    b.ran("mul", number, aten="mul.Tensor", out="float32")  # by a Python float
    b.ran("ge", number, aten="ge.Scalar", out="bool")
    assert results(b, e0="int64") == [("int64",), ("int64",), ("float32",), ("bool",)]
    assert results(b, e0="float16") == [("float16",), ("float16",), ("float16",), ("bool",)]


def test_a_number_that_a_function_turns_into_a_tensor_follows_the_destination():
    """``weights[i] = 0`` writes a tensor that torch makes of the number, in the dtype of what it writes into."""
    b = RecordingBuilder()
    b.made("int64")
    weights = b.made("int64", op="ones_like")
    zero = b.ran("setitem", aten="lift_fresh.default", out="int64")
    b.ran("setitem", weights, b.made("bool"), zero, aten="index_put_.default", at=b.ops[0].place)
    assert results(b, e1="float32")[1] == ("float32",)
    assert Replay(b.recording, DtypeChange(births={1: "float32"})).ops[1].code == ""


def test_a_copy_keeps_the_dtype_and_a_cast_does_not():
    """``torch.tensor(array)`` copies what it wraps, and ``x.cuda()`` is such an operator, too."""
    b = RecordingBuilder()
    x = b.made("float64")
    copied = b.ran("tensor", b.ran("tensor", x, aten="lift_fresh.default"), aten="_to_copy.default")
    b.ran("float", copied, aten="_to_copy.default", out="float32")
    assert results(b, e0="bfloat16") == [("bfloat16",), ("bfloat16",), ("float32",)]


def test_a_call_that_shares_its_record_passes_on_its_own_operand():
    """A product expands both of its operands by one record, which has the operands of the first call alone."""
    b = RecordingBuilder()
    q, k = b.made("float16"), b.made("float16")
    expanded = b.ran("matmul", q, aten="expand.default")
    b.ran("matmul", expanded, replace(expanded, event=k.event), aten="bmm.default", at=b.ops[0].place)
    for births in ({q.event: "float32"}, {k.event: "float32"}):
        assert Replay(b.recording, DtypeChange(births=births)).ops[1].code == "DT101"
    both = Replay(b.recording, DtypeChange(births={q.event: "float32", k.event: "float32"})).ops[1]
    assert (both.code, both.outputs) == ("", ("float32",))


def test_a_cast_of_an_expression_is_seen_outside_it_only():
    """What the expression computes from the same tensor, before it ends, has the old dtype."""
    b = RecordingBuilder()
    x = b.made("float32")
    made = b.ran("exp", x)
    b.ran("mul", made, x, aten="mul.Tensor")  # in the expression
    b.ran("sin", made)
    inside = frozenset(o.place for o in b.ops[:2])
    run = Replay(b.recording, DtypeChange(results={0: "float16"}, inside=inside))
    assert [c.inputs[0] for c in run.ops] == ["float32", "float32", "float16"]
    assert [c.outputs for c in run.ops] == [("float32",), ("float32",), ("float16",)]


def test_a_cast_that_changed_nothing_follows_the_tensor_whose_dtype_it_took():
    b = RecordingBuilder()
    sample, table = b.made("float32"), b.made("float32")
    cat = b.ran("cat", table)
    read = Read("float32", 0, sample.event)
    cast = b.made("float32", "attribute", "to", reads=(read,))
    b.refused("linear", Made("float32", cast.event, cat.producer), b.made("float16"))
    run = Replay(b.recording, DtypeChange(births={sample.event: "float16"}))
    assert given_again(run, b.recording.refused[0])[0] == "float16"


def test_the_number_that_did_not_fit_is_known():
    """A wider tensor holds it, and so does a narrow one where a smaller number is written."""
    b = RecordingBuilder()
    scores, mask = b.made("float16"), b.made("bool")
    number = Made("python float", -1, name="-1e9", shape=())
    b.refused("masked_fill", scores, mask, number, code="DT110", wants="fits", aten="masked_fill.Scalar")
    (refused,) = b.recording.refused
    assert isinstance(refused_with(refused, {0: "float16"}), Refuses)
    assert refused_with(refused, {0: "float32"}) == Gives(("float32",))
    assert refused_with(refused, {}, {2: -65504.0}) == Gives(("float16",))
    assert isinstance(refused_with(refused, {}, {2: -7e4}), Refuses)


def test_what_no_operator_refuses_runs_where_its_operands_agree():
    b = RecordingBuilder()
    gradient, parameter = b.made("float32"), b.made("bfloat16")
    b.refused("backward", gradient, parameter, code="DT117", phase="backward", aten=None)
    (refused,) = b.recording.refused
    assert isinstance(refused_with(refused, {0: "bfloat16"}), Gives)
    assert isinstance(refused_with(refused, {0: "float16"}), Refuses)


def test_a_loss_scaler_refuses_float16_and_nothing_else():
    b = RecordingBuilder()
    b.refused("unscale_", b.made("float16"), code="DT116", wants="other", phase="optimizer", aten=None)
    (refused,) = b.recording.refused
    assert isinstance(refused_with(refused, {0: "float32"}), Gives)
    assert isinstance(refused_with(refused, {0: "float16"}), Refuses)
