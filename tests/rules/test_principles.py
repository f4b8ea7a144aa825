"""Each principle of the judgement on a recording of a few lines, and with the two sides swapped: the verdict swaps, too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import programs
import pytest
import torch
from recordings import Made, RecordingBuilder, swapped

import dtypetrace
from dtypetrace.records import Parameter, Plan, Read, Recording
from dtypetrace.records.measurements import Shared
from dtypetrace.rules import culprits
from dtypetrace.rules.collision import Collision
from dtypetrace.rules.principles import PRINCIPLES, name_of

HALVES = ("float16", "bfloat16")


def decided(recording: Recording) -> tuple[str, str | None, str | None]:
    """Principle, the dtype that is right, the dtype of the culprit."""
    refused = recording.refused[-1]
    verdict = culprits.verdict(recording, refused)
    culprit = culprits.culprit(refused, verdict.expected)
    return verdict.principle, verdict.expected, culprit.dtype if culprit else None


def both_ways(b: RecordingBuilder, principle: str, right: str, wrong: str) -> None:
    """The verdict, whichever side each operand stands on."""
    assert decided(b.recording) == (principle, right, wrong)
    assert decided(b.swapped) == (principle, right, wrong)


def weights(dtype: str, made: Made, count: int = 3) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"layer.{n}.weight", dtype, 16, made.event) for n in range(count))


# ---------------------------------------------------------------- what happened


@pytest.mark.parametrize("stored", ["float8_e4m3fn", "float8_e5m2", "uint16"])
def test_storage_format(stored):
    b = RecordingBuilder()
    b.refused("matmul", b.made(stored, "cast", explicit=True), b.made("bfloat16"))
    both_ways(b, "storage format", "bfloat16", stored)


def test_bits():
    b = RecordingBuilder()
    b.refused("and", b.made("bool"), b.made("float32"), wants="kernel")
    both_ways(b, "bits", "bool", "float32")


def test_single_number():
    b = RecordingBuilder()
    ema, new = b.made("bfloat16"), b.made("bfloat16")
    b.refused(
        "lerp_", ema, new, b.made("float32", shape=(1,)), model=weights("float32", b.made("float32", "parameter"))
    )
    both_ways(b, "single number", "bfloat16", "float32")


def test_two_storage_formats_are_judged_by_something_else():
    b = RecordingBuilder()
    b.refused("matmul", b.made("float8_e5m2"), b.made("float8_e4m3fn"))
    assert decided(b.recording)[0] != "storage format"


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_complex_beside_real(real):
    """But a weight is real on purpose."""
    b = RecordingBuilder()
    b.refused("matmul", b.made(real, "parameter"), b.made("complex64"), run={real: 99})
    both_ways(b, "complex beside real", "complex64", real)
    weight = b.made(real, "parameter")
    b.refused("linear", b.made("complex64"), weight.as_parameter("weight"), run={real: 99})
    assert decided(b.recording)[0] != "complex beside real"


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_weights_of_which_the_line_made_complex_numbers_before(real):
    b = RecordingBuilder()
    spectrum, kernel = b.made("complex64"), b.made(real, "parameter").as_parameter("kernel")
    joined = b.widened(kernel, spectrum, "einsum")
    b.refused("einsum", spectrum, kernel, run={real: 99})
    assert decided(b.recording)[0] != "complex beside real"
    b.refused("einsum", spectrum, kernel, run={real: 99}, at=b.recording.events[joined.event].place)
    both_ways(b, "complex beside real", "complex64", real)


@pytest.mark.parametrize("half", HALVES)
def test_widened_destination(half):
    """An average that is kept wide; but not a total that has its dtype by default, nor one narrower than its values."""
    b = RecordingBuilder()
    weight = b.made(half, "cast", explicit=True)
    b.refused("lerp_", b.made("float32", "cast", of=weight, explicit=True), weight)
    assert decided(b.recording) == ("widened destination", "float32", half)
    b.refused("lerp_", b.made("float32", "factory"), weight)
    assert decided(b.recording)[0] != "widened destination"
    b.refused("lerp_", b.made(half, "cast", explicit=True), b.made("float32"))
    assert decided(b.recording)[0] != "widened destination"


@pytest.mark.parametrize("half", HALVES)
def test_changed_later(half):
    b = RecordingBuilder()
    state = b.made("float32")
    weight = b.made(half, "cast", of=state, explicit=True).as_parameter("weight", changed=True)
    b.refused("lerp_", state, weight, phase="optimizer")
    both_ways(b, "changed later", "float32", half)


@pytest.mark.parametrize("half", HALVES)
def test_fused_path(half):
    """All operands agree, or some already have autocast's dtype: the weights are what is not cast everywhere."""
    b = RecordingBuilder()
    weight = b.made("float32", "parameter").as_parameter("layers.0.weight")
    for given in ("float32", half):
        b.refused("_transformer_encoder_layer_fwd", b.made(given), weight, autocast=f"cpu:{half}")
        assert decided(b.recording) == ("fused path", half, "float32")
    b.refused("_transformer_encoder_layer_fwd", b.made(half), weight)
    assert decided(b.recording)[0] != "fused path"


def test_named_by_exception():
    b = RecordingBuilder()
    b.refused("linear", b.made("float32"), dtypes=(("found", "float32"), ("expected", "float16")))
    assert decided(b.recording) == ("named by exception", "float16", "float32")


@pytest.mark.parametrize("half", HALVES)
def test_made_like_another(half):
    """A result that is allocated like the features; but not one with the default dtype, nor other values."""
    b = RecordingBuilder()
    features, rows = b.made("float32", "factory"), b.made(half, "autocast", "linear")
    like = b.made("float32", "factory", "new_empty", reads=(Read("float32", 0, features.event, -1),))
    for into, value, principle in (
        (like, rows, "made like another"),
        (features, rows, "autocast region"),
        (like, b.made(half, "cast", explicit=True), "autocast region"),
    ):
        b.refused("index_put_", into, value, autocast=f"cpu:{half}")
        found = culprits.verdict(b.recording, b.refusals[-1])
        assert (found.principle, found.expected) == (principle, "float32" if principle[0] == "m" else half)


@pytest.mark.parametrize("half", HALVES)
def test_autocast_region(half):
    b = RecordingBuilder()
    b.refused("index_add", b.made("float32"), b.made(half, "autocast", "linear"), autocast=f"cpu:{half}")
    both_ways(b, "autocast region", half, "float32")


@pytest.mark.parametrize("half", HALVES)
def test_gathered_weights(half):
    """Shards are kept in float32 and computed with in another dtype: most parameters say nothing then."""
    b = RecordingBuilder()
    weight = b.made(half, explicit=True).as_parameter("model.0.weight")
    b.refused("linear", b.made("float32"), weight, model=(Parameter("1.weight", "float32", 99, -1),))
    assert decided(b.recording)[:2] == ("most parameters", "float32")
    sharded = replace(b.recording, plans=(Plan(0, "Net", shared=(Shared("0", "fully_shard", half, "float32"),)),))
    assert decided(sharded)[:2] == ("gathered weights", half)
    other = replace(b.recording, plans=(Plan(0, "Net", shared=(Shared("0", "fully_shard", "float64", ""),)),))
    assert decided(other)[0] == "most parameters"


@pytest.mark.parametrize("half", HALVES)
def test_autocast_narrowed(half):
    """An Embedding is not on autocast's list, a Linear is: the activation is narrow, and no weight is wrong."""
    b = RecordingBuilder()
    embedded = b.made("float32", "parameter")
    b.refused("index_put", embedded, b.made(half, "autocast", "linear"), autocast=f"cpu:{half}")
    assert decided(b.recording)[:2] == ("autocast narrowed", "float32")


@pytest.mark.parametrize("how", ["factory", "cast", "conversion"])
@pytest.mark.parametrize("trained", [True, False])
def test_autocast_narrowed_beside_a_trained_parameter_that_was_only_moved(how, trained):
    """A mask token of zeros, a table of anchors made from a list, a prompt that was cast: repeated or sliced."""
    b = RecordingBuilder()
    token = b.made("float32", how)
    parameter = Parameter("token", "float32", 4, token.event, trained)
    b.refused("scatter", token, b.made("bfloat16", "autocast", "linear"), autocast="cpu:bfloat16", model=(parameter,))
    principle, right = decided(b.recording)[:2]
    assert (principle == "autocast narrowed" and right == "float32") == trained


@pytest.mark.parametrize(("old", "new"), [("float32", "float16"), ("float16", "float32")])
def test_ran_before(old, new):
    b = RecordingBuilder()
    first, weight = b.made(old), b.made(old, "parameter").as_parameter("weight")
    b.ran("linear", first, weight, module="net")
    b.ran("relu", first)
    b.refused("linear", b.made(new), weight, at=b.ops[0].place)
    both_ways(b, "ran before", old, new)


def test_ran_before_in_an_optimizer():
    """A state that was restored in the dtype of the weights meets the gradient that the step widens."""
    b = RecordingBuilder()
    grad = b.made("float32", "cast", explicit=True)
    b.ran("lerp_", b.made("float32"), grad, phase="optimizer")
    b.ran("square", grad, phase="optimizer")
    restored = b.made("float16", "cast", explicit=True)
    b.refused("lerp_", restored, grad, phase="optimizer", module="", at=b.ops[0].place, run={"float16": 99})
    both_ways(b, "ran before", "float32", "float16")


def test_what_has_changed_on_both_sides_since_says_nothing():
    b = RecordingBuilder()
    b.ran("linear", b.made("float32"), b.made("float32", "parameter").as_parameter("weight"), module="net")
    b.ran("relu", b.made("float32"))
    b.refused("linear", b.made("float64"), b.made("float16").as_parameter("weight"), at=b.ops[0].place)
    assert decided(b.recording)[0] != "ran before"


@pytest.mark.parametrize(
    ("layer", "shape"), [("nn.LayerNorm(4)", (2, 4)), ("nn.Linear(4, 4)", (2, 4)), ("nn.Conv1d(4, 4, 1)", (1, 4, 3))]
)
@pytest.mark.parametrize("again", [True, False])
def test_ran_before_in_another_model(tmp_path, layer, shape, again):
    """A second model that is cast as a whole got its dtype on purpose; the first one's runs say nothing of it. A model
    that is cast after it ran has changed."""
    text = f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = {layer}

            def forward(self, x):
                return self.layer(x)

        net, x = Net(), torch.randn{shape}
        net(x)
        net = {"Net()" if again else "net"}
        net.to(torch.bfloat16)
        net(x)
        """
    principle, right, _ = decided(programs.run(tmp_path, text).with_text)
    assert (principle == "ran before", right) == ((False, "bfloat16") if again else (True, "float32"))


@pytest.mark.parametrize(("a", "b_"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_library_argument(a, b_):
    b = RecordingBuilder()
    calling = b.line()
    passed = b.made(b_, "cast", explicit=True, library="generate", below=calling)
    own = b.made(a, explicit=True)
    b.refused("scatter_add", passed, own, below=calling)
    both_ways(b, "library argument", b_, a)


# ---------------------------------------------------------------- what the parameters say


@pytest.mark.parametrize("half", HALVES)
def test_inside_a_model_and_beside_wider_tensors_what_is_trained_says_nothing(half):
    b = RecordingBuilder()
    weight = b.made("float32", "parameter").as_parameter("head.weight", trained=True)
    model = (Parameter("base.weight", half, 99, -1),)
    b.refused("linear", b.made(half, "cast", explicit=True), weight, model=model)
    assert decided(b.recording)[0] != "trained outside"
    b.refused("lerp", b.made("float32"), b.made(half, "parameter").as_parameter("weight", trained=True))
    assert decided(b.recording)[0] != "trained outside"


def test_autocast_left(tmp_path):
    program = programs.run(
        tmp_path,
        """
        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return F.linear(x, w)
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g @ w, g.t() @ x
        net = nn.Linear(4, 8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = Scaled.apply(torch.randn(2, 4, requires_grad=True), net.weight)
        y.float().sum().backward()
        """,
    )
    for recording in (program.with_text, swapped(program.with_text)):
        assert decided(recording) == ("autocast left", "float32", "bfloat16")


@pytest.mark.parametrize(("kept", "computes"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_cast_in_forward(kept, computes, tmp_path):
    program = programs.run(
        tmp_path,
        f"""
        class Rounded(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x @ (w.float() * 2).to(x.dtype)
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g @ w.t(), x.t() @ g
        net = nn.Linear(4, 4).to(torch.{kept})
        x = torch.randn(2, 4, requires_grad=True, dtype=torch.{computes})
        Rounded.apply(x, net.weight).sum().backward()
        """,
    )
    for recording in (program.with_text, swapped(program.with_text)):
        assert decided(recording) == ("cast in forward", computes, kept)
    assert program.findings[0].fix.edits[0].before == "w.t()"


@pytest.mark.parametrize("computes", ["bfloat16", "float32"])
@pytest.mark.parametrize("result", ["x @ w", "torch.relu(x @ w)", "(x @ w) @ w"])
def test_a_gradient_is_wrong_where_forward_casts_what_it_computed(computes, result, tmp_path):
    returns = "float32" if computes == "bfloat16" else "bfloat16"
    program = programs.run(
        tmp_path,
        f"""
        class Residual(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                x = x.to(w.dtype)
                ctx.save_for_backward(x, w)
                return ({result}).to(torch.{returns})  #!
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g @ w.t(), x.t() @ g
        net = nn.Linear(4, 4).to(torch.{computes})
        x = torch.randn(2, 4, requires_grad=True, dtype=torch.{returns})
        Residual.apply(x, net.weight).sum().backward()
        """,
    )
    for recording in (program.with_text, swapped(program.with_text)):
        assert decided(recording) == ("cast in forward", computes, returns)
    assert program.at(program.findings[0].culprit.origin.place).endswith("#!")


def test_left_cast(tmp_path):
    program = programs.run(
        tmp_path,
        """
        net = nn.Linear(4, 4).half()
        def use(x):
            if net.weight.dtype == torch.float16:
                net.float()
                x = x.float()
            return net(x)
        use(torch.ones(1, 4).half()), use(torch.ones(1, 4).half())
        """,
    )
    for recording in (program.with_text, swapped(program.with_text)):
        assert decided(recording) == ("left cast", "float16", "float32")


NORM = """
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.proj = nn.Linear(4, 4)
    def forward(self, x):
        {line}
        return {back}
Norm().to(torch.bfloat16)(torch.ones(2, 4).bfloat16())
"""


@pytest.mark.parametrize(
    "line",
    [
        "y = F.linear(x.float(), self.weight)",
        "y = F.linear(x.to(torch.float32), self.weight) * 2",
        "y = torch.matmul(x.type(torch.float32), self.weight)",
    ],
)
def test_asked_in_the_call(tmp_path, line):
    recording = programs.run(tmp_path, NORM.format(line=line, back="y.to(x.dtype)")).with_text
    assert decided(recording) == ("asked in the call", "float32", "bfloat16")


@pytest.mark.parametrize(
    ("line", "back"),
    [
        ("y = F.linear(x.float(), self.weight)", "y"),
        ("y = self.proj(x.float())", "y.to(x.dtype)"),
        ("z = x.float(); y = F.linear(z, self.weight)", "y.to(x.dtype)"),
    ],
)
def test_a_cast_that_is_not_taken_back_or_not_in_the_call_asks_for_nothing(tmp_path, line, back):
    recording = programs.run(tmp_path, NORM.format(line=line, back=back)).with_text
    assert decided(recording) == ("most parameters", "bfloat16", "float32")


@pytest.mark.parametrize("half", HALVES)
def test_trained_outside(half):
    """Adapters beside a base in half: most parameters of the run are half, and the average must not narrow them."""
    b = RecordingBuilder()
    average, weight = b.made(half, "cast", explicit=True), b.made("float32", "parameter")
    b.refused("lerp", average, weight.as_parameter("down.weight", trained=True), run={half: 99, "float32": 1})
    both_ways(b, "trained outside", "float32", half)
    b.refused("lerp", average, weight.as_parameter("down.weight"), run={half: 99, "float32": 1})
    assert decided(b.recording)[:2] == ("most parameters", half)
    value = b.ran(
        "linear", b.made(half), b.made(half, "cast", explicit=True).as_parameter("proj.weight"), module="proj"
    )
    b.refused("matmul", value, weight.as_parameter("", trained=True), run={half: 99, "float32": 1})
    assert decided(b.recording)[:2] == ("most parameters", half), "an adapter in a plain class is a layer"


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("ran", [True, False])
def test_trained_beside_frozen(half, ran):
    """A teacher in half, and a student that has computed in float32: their sizes do not count."""
    b = RecordingBuilder()
    teacher, student = b.made(half, "cast", explicit=True), b.made("float32", "parameter")
    match = b.made("float32", "parameter").as_parameter("match.weight", trained=True)
    if ran:
        b.ran("matmul", b.made("float32"), student.as_parameter("student.weight"), aten="mm.default")
    value = b.ran("linear", b.made(half), teacher.as_parameter("teacher.weight"))
    kept = (Parameter("teacher.weight", half, 999, teacher.event),)
    moved = tuple(Parameter(m.name, "float32", 9, m.event, trained=True) for m in (student, match))
    b.refused("linear", value, match, model=(*kept, *moved))
    if ran:
        both_ways(b, "trained beside frozen", "float32", half)
    else:
        assert decided(b.recording)[0] != "trained beside frozen"


def test_float64_from_numpy():
    b = RecordingBuilder()
    numpy = b.made("float64", "conversion")
    b.refused(
        "linear",
        b.made("float32"),
        numpy.as_parameter("weight"),
        model=weights("float64", b.made("float64", "conversion")),
    )
    both_ways(b, "float64 from numpy", "float32", "float64")


def test_default_left_behind():
    b = RecordingBuilder()
    weight = b.made("float64", "parameter", default=b.line(library="simulate"))
    b.refused(
        "linear", b.made("float32", explicit=True), weight.as_parameter("weight"), model=weights("float64", weight)
    )
    both_ways(b, "default left behind", "float32", "float64")


def test_float64_by_name_is_a_decision():
    b = RecordingBuilder()
    model = weights("float64", b.made("float64", explicit=True))
    b.refused("linear", b.made("float32"), b.made("float64").as_parameter("weight"), model=model)
    both_ways(b, "most parameters", "float64", "float32")


@pytest.mark.parametrize("half", HALVES)
def test_default_yields(half):
    b = RecordingBuilder()
    forgotten = b.made("float32", "parameter").as_parameter("weight")
    b.made(half, "cast", explicit=True)
    x = b.made(half, explicit=True)
    model = (Parameter("weight", "float32", 16, forgotten.event), *weights("float32", b.made("float32", "parameter")))
    b.refused("linear", x, forgotten, model=model)
    both_ways(b, "default yields", half, "float32")


def test_half_weights_of_another_model_are_no_decision_for_this_one():
    b = RecordingBuilder()
    x = b.made("float16", "cast", explicit=True)
    model = weights("float32", b.made("float32", "parameter"))
    weight = b.made("float32", "parameter").as_parameter("weight")
    b.refused("conv1d", x, weight, model=model, run={"float32": 64, "float16": 32})
    both_ways(b, "most parameters", "float32", "float16")


def test_one_cast_alone_is_no_decision_for_the_run():
    b = RecordingBuilder()
    model = weights("float32", b.made("float32", "parameter"))
    b.refused("linear", b.made("float16", "cast", explicit=True), b.made("float32").as_parameter("weight"), model=model)
    both_ways(b, "most parameters", "float32", "float16")


def test_a_cast_to_the_dtype_of_another_repeats_a_decision():
    b = RecordingBuilder()
    first = b.made("float16", "cast", explicit=True)
    read = Read("float16", b.line(), first.event, -1)
    x = b.made("float16", "cast", explicit=True, reads=(read,))
    model = weights("float32", b.made("float32", "parameter"))
    b.refused("linear", x, b.made("float32", "parameter").as_parameter("weight"), model=model)
    both_ways(b, "most parameters", "float32", "float16")


@pytest.mark.parametrize(("most", "one"), [("float32", "float16"), ("bfloat16", "float32"), ("float32", "float64")])
def test_most_parameters(most, one):
    b = RecordingBuilder()
    odd = b.made(one, "cast", explicit=True).as_parameter("odd.weight")
    model = (Parameter("odd.weight", one, 10**6, odd.event), *weights(most, b.made(most, "cast", explicit=True)))
    b.refused("linear", b.made(most, explicit=True), odd, model=model)
    both_ways(b, "most parameters", most, one)  # however many numbers the operand holds: its dtype is in question


def test_cast_where_used():
    """A model stored in bfloat16 that computes in float16, and a mask in the dtype of what is stored."""
    b = RecordingBuilder()
    stored = b.made("bfloat16", "cast", explicit=True)
    x, weight = b.made("float16", "cast", explicit=True), stored.as_parameter("proj.weight")
    query = b.ran("linear", x, b.ran("to", weight, out="float16", aten="_to_copy.default"))
    mask = b.made("bfloat16", "cast", explicit=True)
    model = weights("bfloat16", stored)
    b.refused("scaled_dot_product_attention", query, mask, arguments=("query", "attn_mask"), model=model)
    both_ways(b, "cast where used", "float16", "bfloat16")


def test_a_model_whose_weights_also_multiply_as_they_are_is_not_cast_where_used():
    b = RecordingBuilder()
    stored = b.made("bfloat16", "cast", explicit=True)
    x, weight = b.made("float16", "cast", explicit=True), stored.as_parameter("proj.weight")
    b.ran("linear", b.made("bfloat16"), weight)
    query = b.ran("linear", x, b.ran("to", weight, out="float16", aten="_to_copy.default"))
    model = weights("bfloat16", stored)
    b.refused("linear", query, weight, model=model)
    both_ways(b, "most parameters", "bfloat16", "float16")


def test_what_a_model_shares_with_a_larger_one_counts():
    """A head that holds the embedding of the model whose states it gets; a weight of its own would be in question."""
    b = RecordingBuilder()
    cast = b.made("bfloat16", "cast", explicit=True)
    own = b.made("float16", "parameter", explicit=True)
    head = (Parameter("embed.weight", "bfloat16", 1000, cast.event), Parameter("norm.weight", "float16", 10, own.event))
    state = b.ran("linear", cast, cast.as_parameter("lm.weight"))
    for others, right in ((("embed", "layer", "lm"), "bfloat16"), (("embed",), "float16")):
        b.parameters = [Parameter(f"{name}.weight", "bfloat16", 1000, cast.event) for name in others]
        b.refused("linear", state, b.made("float16").as_parameter("fc.weight"), model=head)
        assert culprits.verdict(b.recording, b.refusals[-1]).expected == right


def test_most_parameters_of_the_run_where_no_model_runs():
    b = RecordingBuilder()
    b.refused("matmul", b.made("float16"), b.made("float32"), run={"float16": 1000, "float32": 10})
    both_ways(b, "most parameters", "float16", "float32")
    assert "parameters of the program's models" in culprits.verdict(b.recording, b.refusals[0]).reason


def test_real_weights_decide_the_dtype_of_complex_numbers():
    b = RecordingBuilder()
    model = (Parameter("scale", "float64", 4, b.made("float64", "cast", explicit=True).event),)
    b.refused("matmul", b.made("complex64"), b.made("complex128"), model=model)
    both_ways(b, "most parameters", "complex128", "complex64")


# ---------------------------------------------------------------- what the operation wants


def test_destination():
    b = RecordingBuilder()
    b.refused("index_put_", b.made("float32"), b.made("float16"), wants="other", argument="input", code="DT107")
    assert decided(b.recording) == ("destination", "float16", "float32")
    assert decided(b.swapped) == ("destination", "float32", "float16")  # the argument is blamed, whichever tensor it is


def test_weights_meet_float64():
    b = RecordingBuilder()
    b.refused("linear", b.made("float64"), b.made("bfloat16", "parameter").as_parameter("weight", trained=True))
    both_ways(b, "weights meet float64", "bfloat16", "float64")


def test_floating_over_integers():
    b = RecordingBuilder()
    b.refused("linear", b.made("int64"), b.made("float16").as_parameter("weight"))
    both_ways(b, "floating over integers", "float16", "int64")


# ---------------------------------------------------------------- counts, and how each dtype was chosen


@pytest.mark.parametrize(("many", "one"), [("float32", "float16"), ("float16", "float32")])
def test_most_operands(many, one):
    b = RecordingBuilder()
    b.refused("scaled_dot_product_attention", b.made(many), b.made(one), b.made(many))
    both_ways(b, "most operands", many, one)


def test_what_a_module_holds_counts_once():
    b = RecordingBuilder()
    made = b.made("float32", "parameter")
    b.refused(
        "linear", b.made("float16", "cast", explicit=True), made.as_parameter("weight"), made.as_parameter("bias")
    )
    both_ways(b, "chosen on purpose", "float16", "float32")


@pytest.mark.parametrize(("chosen", "fallen"), [("float16", "float32"), ("float64", "float32"), ("float32", "float64")])
def test_chosen_on_purpose(chosen, fallen):
    b = RecordingBuilder()
    b.refused("matmul", b.made(chosen, explicit=True), b.made(fallen, "conversion"))
    both_ways(b, "chosen on purpose", chosen, fallen)


@pytest.mark.parametrize(("how", "wrong"), [("cast", "float32"), ("factory", "float32")])
def test_integers_on_purpose(how, wrong):
    """Neither side can be exchanged: only the one that is written into refuses."""
    b = RecordingBuilder()
    b.refused("clamp_", b.made("int64", how, explicit=True), b.made("float32"), code="DT111", wants="other")
    assert decided(b.recording)[:2] == ("integers on purpose", "int64")


@pytest.mark.parametrize(("cast", "given"), [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float16")])
def test_cast_by_library(cast, given):
    b = RecordingBuilder()
    weight = b.made(cast, "cast", explicit=True).as_parameter("head.weight")
    value = b.made(given, "cast", explicit=True, library="trainer")
    b.refused("linear", value, weight)
    assert decided(b.recording)[:2] == ("cast by library", cast)


def test_torch_integers():
    b = RecordingBuilder()
    b.refused("index_put_", b.made("int64"), b.made("int32"))
    both_ways(b, "torch integers", "int64", "int32")


def test_narrower():
    b = RecordingBuilder()
    b.refused("matmul", b.made("float64"), b.made("float32"))
    both_ways(b, "narrower", "float32", "float64")


# ---------------------------------------------------------------- all of them


def test_nothing_seen_is_no_verdict():
    b = RecordingBuilder()
    b.refused("matmul")
    assert decided(b.recording) == ("", None, None)


def test_every_principle_is_tested_here():
    tested = set(re.findall(r"def test_(\w+)\(", Path(__file__).read_text("utf-8")))
    assert {p.__name__ for p in PRINCIPLES} <= tested


def test_contributing_lists_the_principles_in_order():
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    listed = re.findall(r"^\d+\. \*\*(.+?)\*\*: (.+)$", text, re.M)
    reasons = [" ".join((p.__doc__ or "").split("\n\n")[0].split()) for p in PRINCIPLES]
    assert listed == list(zip(map(name_of, PRINCIPLES), reasons))


def test_a_verdict_carries_the_name_of_the_first_principle_that_answers():
    b = RecordingBuilder()
    b.refused("matmul", b.made("float64"), b.made("float32"), autocast="cpu:float64")
    case = Collision(b.recording, b.refusals[0])
    answers = [name_of(p) for p in PRINCIPLES if p(case) is not None]
    assert answers[0] == culprits.verdict(b.recording, b.refusals[0]).principle == "autocast region"
    assert len(answers) > 1


def test_swapping_twice_changes_nothing():
    b = RecordingBuilder()
    b.refused("matmul", b.made("float64"), b.made("float32"))
    assert swapped(b.swapped) == b.recording and replace(b.recording) == b.recording


# ---------------------------------------------------------------- parts, sums, families


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("wide", [True, False], ids=["float32 model", "half model"])
def test_taken_from_file(half, wide):
    """A checkpoint's dtype that nothing asks for, in a model as it was made or in one that was cast."""
    b = RecordingBuilder()
    made = b.made("float32", "parameter", name="weight")
    if not wide:
        b.made(half, "cast", of=made, explicit=True)
    loaded, right = (half, "float32") if wide else ("float32", half)
    load = b.made(loaded, "load", explicit=True)
    x = b.made(right, "factory" if wide else "cast", explicit=not wide)
    b.refused("linear", x, load.as_parameter("layer.0.weight"), module="net.layer.0", model=weights(loaded, load))
    both_ways(b, "taken from file", right, loaded)


@pytest.mark.parametrize("asks", ["before the load", "after the load"])
def test_a_checkpoint_in_the_dtype_that_the_program_asks_for(asks):
    b = RecordingBuilder()
    made = b.made("float32", "parameter", name="weight")
    if asks == "before the load":
        b.made("float16", "cast", of=made, explicit=True)
    load = b.made("float16", "load", explicit=True)
    x = b.made("float32")
    if asks == "after the load":
        b.made("float16", "cast", of=x, explicit=True)
    b.refused("linear", x, load.as_parameter("layer.0.weight"), module="net.layer.0", model=weights("float16", load))
    both_ways(b, "most parameters", "float16", "float32")


def part_cast(half: str, *, rest_first: bool = True) -> tuple[RecordingBuilder, Made, Made, tuple[Parameter, ...]]:
    """A model of which one part was cast by itself, and a value that leaves the part."""
    b = RecordingBuilder()
    if rest_first:
        rest = b.made("float32", "parameter")
    part = b.made(half, "cast", explicit=True)
    if not rest_first:
        rest = b.made("float32", "parameter")
    x = b.made(half, "cast", explicit=True, module="net")
    y = b.ran("linear", x, part.as_parameter("part.weight"), module="net.part")
    model = (Parameter("part.weight", half, 999, part.event), Parameter("head.weight", "float32", 16, rest.event))
    return b, y, rest.as_parameter("head.weight"), model


@pytest.mark.parametrize("half", HALVES)
def test_cast_of_a_part(half):
    """However few weights the rest has, what leaves the part takes the cast."""
    b, y, head, model = part_cast(half)
    b.refused("linear", y, head, module="net.head", model=model)
    both_ways(b, "cast of a part", "float32", half)


@pytest.mark.parametrize("half", HALVES)
def test_a_part_made_after_the_whole_model_was_cast_is_wrong_itself(half):
    b, y, head, model = part_cast(half, rest_first=False)
    b.refused("linear", y, head, module="net.head", model=model)
    both_ways(b, "most parameters", half, "float32")


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("late", ["out", "stem"])
@pytest.mark.parametrize("home", ["", "encoder."], ids=["whole model", "a module of it"])
def test_layers_that_come_late_to_a_cast_module_do_not_count(half, late, home):
    """However many weights they have: a new read-out beside a new table, where the result of the cast meets them, and a
    new layer whose own result meets the cast."""
    b = RecordingBuilder()
    cast = b.made(half, "cast", of=b.made("float32", "parameter"), explicit=True)
    new, table = b.made("float32", "parameter"), b.made("float32", "factory")
    within = cast.as_parameter(f"{home}mix.weight")
    model = (
        *(Parameter(f"{home}{name}.weight", half, 16, cast.event) for name in ("embed", "mix")),
        Parameter(f"{home}{late}.weight", "float32", 9999, new.event),
        Parameter(f"{home}table", "float32", 9999, table.event),
    )
    if late == "out":
        x = b.ran("linear", b.made(half, "cast", explicit=True), within, module="net.mix")
        b.refused("linear", x, new.as_parameter(f"{home}out.weight"), module="net.out", model=model)
    else:
        x = b.ran("linear", b.made("float32"), new.as_parameter(f"{home}stem.weight"), module="net.stem")
        b.refused("linear", x, within, module="net.mix", model=model)
    both_ways(b, "most parameters", half, "float32")


@pytest.mark.parametrize("half", HALVES)
def test_a_head_beside_a_cast_part_counts(half):
    b = RecordingBuilder()
    cast = b.made(half, "cast", of=b.made("float32", "parameter"), explicit=True)
    head, bias = b.made("float32", "parameter"), b.made("float32", "parameter")
    model = (
        *(Parameter(f"backbone.{name}.weight", half, 16, cast.event) for name in ("embed", "mix")),
        Parameter("head.0.weight", "float32", 999, head.event),
        Parameter("head.1.weight", "float32", 999, bias.event),
    )
    x = b.ran("linear", b.made(half, "cast", explicit=True), cast.as_parameter("backbone.mix.weight"), module="net")
    b.refused("linear", x, head.as_parameter("head.0.weight"), module="net.head.0", model=model)
    both_ways(b, "most parameters", "float32", half)


@pytest.mark.parametrize("half", HALVES)
def test_a_part_that_was_cast_after_the_whole_is_wrong(half):
    """Also where its result meets a result of the rest, and no weight."""
    b = RecordingBuilder()
    whole = b.made(half, "cast", explicit=True)
    part = b.made("float32", "cast", of=whole, explicit=True)
    text = b.ran("embedding", whole.as_parameter("embed.weight"), module="net.embed")
    seen = b.ran("linear", part, part.as_parameter("vision.weight"), module="net.vision")
    model = (Parameter("vision.weight", "float32", 999, part.event), Parameter("embed.weight", half, 16, whole.event))
    b.refused("masked_scatter", text, seen, module="net", model=model)
    both_ways(b, "cast of a part", half, "float32")


def test_weights_meet_float64_though_nobody_trains_them():
    b = RecordingBuilder()
    weight = b.made("float32", "parameter").as_parameter("weight")
    b.refused("linear", b.made("float64", explicit=True), weight, run={"float32": 16})
    both_ways(b, "weights meet float64", "float32", "float64")


def test_weights_of_a_run_in_float64_are_no_reason_against_float64():
    b = RecordingBuilder()
    weight = b.made("float32", "parameter").as_parameter("weight")
    b.refused("linear", b.made("float64", explicit=True), weight, run={"float32": 16, "float64": 16})
    assert decided(b.recording)[0] != "weights meet float64"


def summed(module: str, half: str = "bfloat16", op: str = "index_add_") -> RecordingBuilder:
    b = RecordingBuilder()
    out = b.made(half, "cast", explicit=True)
    wide = b.made("float32", "cast", "float", of=out, explicit=True)
    b.ran("float", out, out="float32", aten="_to_copy.default", at=b.events[wide.event].place)
    total = b.made(half, "factory", "new_zeros", reads=(Read(half, 0, out.event, -1),))
    b.refused(op, total, wide, module=module, arguments=("self", "source"))
    return b


@pytest.mark.parametrize("half", HALVES)
def test_sum_of_widened(half):
    assert decided(summed("", half).recording) == ("sum of widened", "float32", half)


@pytest.mark.parametrize("half", HALVES)
def test_what_only_takes_values_is_no_sum(half):
    assert decided(summed("", half, "scatter_").recording)[0] != "sum of widened"


# ---------------------------------------------------------------- of small programs


def verdict_of(t: dtypetrace.Trace) -> tuple[str, str | None]:
    found = culprits.verdict(t.recording, t.recording.refused[0])
    return found.principle, found.expected


@pytest.mark.parametrize(
    ("offsets", "principle"),
    [
        (lambda sizes: torch.cat([torch.zeros(1), sizes.cumsum(0)]), "integers beside a default"),
        (lambda sizes: torch.stack([torch.full((2,), 3.0), sizes])[1:].flatten(), "integers beside a default"),
        (lambda sizes: torch.cat([torch.rand(1), sizes.cumsum(0)]), "destination"),  # fractions belong there
        (lambda sizes: torch.cat([torch.zeros(1), sizes / 2]), "destination"),
        (lambda sizes: torch.cat([torch.full((1,), 0.5), sizes]), "destination"),
        (lambda sizes: torch.cat([sizes.new_zeros(1), torch.tensor([0.5])]), "destination"),
        (lambda sizes: torch.cat([torch.ones(1).mul(0.5), sizes]), "destination"),
        (lambda sizes: torch.cat([torch.zeros(1, dtype=torch.float32), sizes]), "destination"),
    ],
)
def test_integers_beside_a_default(offsets, principle):
    with pytest.raises(RuntimeError), dtypetrace.trace(precision="values") as t:
        bonds = torch.randint(0, 4, (2, 5))
        bonds += offsets(torch.tensor([4, 7]))[1]
    assert verdict_of(t) == (principle, "float32" if principle == "destination" else "int64")


GATHERED = """
import torch
import torch.distributed as dist
def exchange(data):
    <buffers>  # made
    <call>
try:
    exchange(torch.rand(3))
    exchange(<sent>)
finally:
    dist.destroy_process_group()
"""
EXCHANGES = {
    "gather to all": ("kept = [torch.zeros(3)]", "dist.all_gather(kept, data)"),
    "gather to one": ("kept = [torch.empty(3)]", "dist.gather(data, kept)"),
    "all to all": ("kept = torch.zeros(3)", "dist.all_to_all_single(kept, data)"),
}


@pytest.mark.parametrize(
    "sent", ["torch.ones(3, dtype=torch.int64)", "torch.rand(3).half()", "torch.rand(3, dtype=torch.float64)"]
)
@pytest.mark.parametrize(("buffers", "call"), EXCHANGES.values(), ids=EXCHANGES)
def test_what_is_sent(buffers, call, sent, tmp_path):
    """The edit follows what is sent: the first call sends another dtype."""
    text = GATHERED.replace("<buffers>", buffers).replace("<call>", call).replace("<sent>", sent)
    alone = "import torch.distributed as dist; dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)"
    program = programs.run(tmp_path, text, before=alone)
    dtype = str(eval(sent).dtype).removeprefix("torch.")
    for recording in (program.with_text, swapped(program.with_text)):
        assert decided(recording) == ("what is sent", dtype, "float32")
    assert program.at(program.findings[0].culprit.origin.place).endswith("# made")
    assert [edit.change.like for edit in program.findings[0].fix.edits] == ["data"]


@pytest.mark.parametrize("buffers", ["kept = torch.zeros(3, dtype=torch.float32)", "kept = data.new_zeros(3).float()"])
def test_a_buffer_whose_dtype_was_named_is_no_default(buffers, tmp_path):
    text = GATHERED.replace("<buffers>", buffers).replace("<call>", "dist.all_to_all_single(kept, data)")
    alone = "import torch.distributed as dist; dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)"
    program = programs.run(tmp_path, text.replace("<sent>", "torch.ones(3, dtype=torch.int64)"), before=alone)
    assert decided(program.with_text)[0] != "what is sent"


DRAWS = """
def krylov(A, v=None):
    basis = torch.zeros((4, 4), dtype=A.dtype)
    <made>
    basis[:, 0] = v
    return torch.dot(basis[0] + A[0], v)
"""


@pytest.mark.parametrize("data", ["float64", "float16"])
@pytest.mark.parametrize("made", ["v = torch.rand(4)", "v = torch.ones(4) * 0.5", "v = torch.linspace(0, 1, 4).sin()"])
def test_made_like_the_data(made, data, tmp_path):
    """The dtype of the data comes from NumPy, that of the vector from the default: neither was named."""
    text = DRAWS.replace("<made>", made) + f"import numpy as np\nkrylov(torch.from_numpy(np.ones((4, 4), np.{data})))"
    program = programs.run(tmp_path, text)
    for recording in (program.with_text, swapped(program.with_text)):
        assert decided(recording) == ("made like the data", data, "float32")
    assert program.at(program.findings[0].culprit.origin.place).startswith("v = ")


def test_what_another_function_makes_says_nothing_of_this_one(tmp_path):
    text = """
    import numpy as np
    def prepare(A):
        return A + torch.zeros((4, 4), dtype=A.dtype)
    torch.dot(prepare(torch.from_numpy(np.ones((4, 4))))[0], torch.rand(4))
    """
    assert decided(programs.run(tmp_path, text).with_text)[0] != "made like the data"


@pytest.mark.parametrize(
    ("numbers", "right"),
    [
        (lambda track: (~track.isnan()).float(), ("default of the program", "float64")),
        (lambda track: torch.arange(9).view(1, 1, 9).to(torch.float32), ("default of the program", "float64")),
        (lambda track: track.float(), ("chosen on purpose", "float32")),  # a precision was asked for
    ],
)
def test_default_of_the_program(numbers, right):
    before = torch.get_default_dtype()
    try:
        with pytest.raises(RuntimeError), dtypetrace.trace() as t:
            torch.set_default_dtype(torch.float64)
            torch.conv1d(numbers(torch.rand(1, 1, 9)), torch.ones(1, 1, 3))
    finally:
        torch.set_default_dtype(before)
    assert verdict_of(t) == right
