"""Each strategy of the remedies on a recording of a few lines: what it proposes, and what it writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import programs
import pytest
import torch
from followed import follow
from recordings import Made, RecordingBuilder
from torch import nn

import dtypetrace
from dtypetrace import rules
from dtypetrace.records import Fix, Parameter, Recording
from dtypetrace.rules import checks, remedies
from dtypetrace.rules.case import Case

IMPORT = "«import torch»"
WIDE = ("float32", "cast")


def program(imports: bool = True) -> RecordingBuilder:
    b = RecordingBuilder()
    if imports:
        b.line(IMPORT)
    return b


def case_of(recording: Recording) -> Case:
    case = rules.judged(recording, recording.refused[-1]).case
    assert case is not None
    return case


def tried(b: RecordingBuilder) -> dict[str, Fix]:
    """What every strategy proposes, by its name."""
    return {c.strategy: c.fix for c in remedies.candidates(case_of(b.recording))}


def best(b: RecordingBuilder) -> tuple[str, list[str]]:
    """The strategy that a finding shows, and what it writes."""
    first = next(iter(remedies.candidates(case_of(b.recording))))
    return first.strategy, [edit.after for edit in first.fix.edits]


def written(b: RecordingBuilder, strategy: str) -> list[str]:
    return [edit.after for edit in tried(b)[strategy].edits]


def model(dtype: str, step: int) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"layer.{n}.weight", dtype, 100, step) for n in range(3))


def mismatch(b: RecordingBuilder, x, **more) -> None:
    """A linear layer of a float16 model refuses x."""
    weight = b.made("float16", "cast", explicit=True)
    b.refused(
        "linear", x, weight.as_parameter("weight"), model=model("float16", weight.event), text="y = «net(x)»", **more
    )


# ---------------------------------------------------------------- codes


def test_codes():
    b = program()
    weight = replace(b.made("uint8", "parameter").as_parameter("head.weight"), codes=True)
    b.refused("linear", b.made("float16"), weight, text="y = «F.linear(x, head.weight, head.bias)»")
    assert best(b) == ("codes", ["head(x)"])
    assert len(tried(b)) == 1, "nothing casts them"


# ---------------------------------------------------------------- where it is used


def test_half_gradients():
    b = program()
    weight = b.made("float16", "cast", explicit=True, text="net = «Net().half()»").as_parameter("weight")
    b.ran("linear", autocast="cpu:float16")
    b.refused("unscale_", weight, code="DT116", wants="other", phase="optimizer", text="«scaler.step(optimizer)»")
    assert best(b) == ("half gradients", ["Net().to(torch.float32)"])
    b.ops.clear()  # without autocast, weights in float32 would meet half inputs
    assert best(b) == ("half gradients", [])


def test_autocast_was_on():
    b = program()
    weight = b.made("float32", "parameter").as_parameter("weight")
    x = b.made("float16", "cast", explicit=True)
    b.ran("linear", x, weight, module="net", autocast="cpu:float16", text="y = «net(x)»")
    b.refused("linear", x, weight, model=model("float32", weight.event), text="y = «net(x)»")
    fix = tried(b)["autocast was on"]
    assert best(b)[0] == "autocast was on" and fix.why.startswith(
        'run this under torch.autocast("cpu", dtype=torch.float16)'
    )


def test_trained_under_autocast():
    b = program()
    weight = b.made("float32", "parameter").as_parameter("weight", trained=True)
    half = tuple(Parameter(f"layer.{n}", "float16", 100, -1) for n in range(3))
    b.refused("linear", b.made("float16", "cast", explicit=True), weight, model=half, text="y = «net(x)»")
    fix = tried(b)["trained under autocast"]
    assert best(b) == ("trained under autocast", ["x.to(net.weight.dtype)"]) and "torch.autocast" in fix.why


def test_integer_parameter():
    b = program()
    x = b.made("int64", explicit=True, text="x = «torch.ones(4, dtype=torch.int64)»")
    how = {"code": "DT119", "wants": "float", "pattern": "grad.requires_grad_int"}
    b.refused("Parameter", x, **how, text="p = «nn.Parameter(x)»")
    assert best(b)[0] == "integer parameter"
    assert "requires_grad=False" in tried(b)["integer parameter"].why


@pytest.mark.parametrize("made", ["torch.ones(4, dtype=torch.int64)", "torch.randint(0, 255, (4,), dtype=torch.int64)"])
def test_a_gradient_that_is_asked_of_integers(made):
    b = program()
    x = b.made("int64", explicit=True, text=f"x = «{made}»")
    how = {"code": "DT119", "wants": "float", "pattern": "grad.requires_grad_int"}
    b.refused("requires_grad_", x, **how, text="«x.requires_grad_()»", run={"float32": 100})
    assert best(b) == ("birth", ["torch.float32"])


def test_leaves_torch():
    b = program()
    x = b.made("bfloat16", explicit=True, text="x = «torch.ones(4, dtype=torch.bfloat16)»")
    b.refused("numpy", x, code="DT120", wants="kernel", arguments=("self",), text="a = «x.numpy()»")
    assert best(b) == ("leaves torch", ["x.to(torch.float32)"])


def test_assigned():
    b = program()
    grad = b.made("float32", text="g = «torch.ones(4)»")
    weight = b.made("float16", explicit=True).as_parameter("p")
    b.refused("grad", weight, grad, aten=None, arguments=("self", "value"), text="«p.grad» = g", run={"float16": 100})
    assert best(b) == ("assigned", ["g.to(torch.float16)"])


def test_right_elsewhere():
    b = program()
    mask = b.made("bool", text="m = «x > 0»")
    b.refused("matmul", mask, b.made("float16"), arguments=("self", "other"), text="y = «m @ w»")
    assert best(b) == ("right elsewhere", ["m.to(torch.float16)"])


def test_scalar_limit():
    b = program()
    x = b.made("float16", explicit=True)
    number = Made("python float", -1, name="-1e9", shape=())
    b.refused("masked_fill", x, number, code="DT110", wants="fits", text="«x.masked_fill(m, -1e9)»")
    assert best(b) == ("scalar limit", ["torch.finfo(x.dtype).min"])
    assert list(tried(b)) == ["scalar limit"]  # a number has no dtype to change


def test_cut_in_the_call():
    """Scores that the refused line casts to integers."""
    with pytest.raises(NotImplementedError), dtypetrace.trace() as t:
        nn.functional.cross_entropy(torch.randn(4, 3).long(), torch.arange(4) % 3)
    assert t.findings[0].fix.why.startswith("leave this cast out")


def test_follows():
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        kept, new, share = torch.zeros(3).half(), torch.ones(3).half(), torch.rand(1)
        kept.lerp_(new, share)
    assert [e.after for e in t.findings[0].fix.edits] == ["share.to(kept.dtype)"]


def test_bracketed():
    b = program()
    x = b.made("float32", text="x = «torch.rand(4)»")
    b.refused("bitwise_and", x, code="DT109", wants="kernel", text="keep = x > «low & x» < high")
    assert best(b) == ("bracketed", ["(x > low) & (x < high)"])


def test_inverted():
    b = program()
    x = b.made("bool", "factory", "gt", text="x = «a > b»")
    b.refused("rsub", x, code="DT109", wants="kernel", text="y = a * («1 - x»)")
    assert best(b) == ("inverted", ["~x"])


def test_no_kernel():
    b = program()
    x = b.made("float16", explicit=True)
    b.refused("linalg_svd", x, code="DT109", wants="kernel", arguments=("A",), text="u = «torch.linalg.svd(x)» + 1")
    assert best(b) == ("no kernel", ["x.to(torch.float32)", "torch.linalg.svd(x).to(x.dtype)"])


@pytest.mark.parametrize(("weights", "line", "shown"), [
    ("float32", "x = «features.half()» + 1", ("no kernel", ["features"])),
    ("float32", "scores.append(«score.half()»)", ("no kernel", ["score"])),
    ("float16", "x = «features.half()» + 1", ("no kernel", ["x.to(torch.float32)", "torch.linalg.svd(x).to(x.dtype)"])),
])  # fmt: skip
def test_values_that_a_program_cast_to_16_bits_in_a_wider_model(weights, line, shown):
    b = program()
    x = b.made("float16", "cast", of=b.made("float32", "factory"), explicit=True, text=line)
    how = {"code": "DT109", "wants": "kernel", "arguments": ("A",)}
    b.refused("linalg_svd", x, **how, text="u = «torch.linalg.svd(x)» + 1", model=model(weights, -1))
    assert best(b) == shown


def test_wide_island():
    b = program()
    x = b.made(*WIDE, explicit=True, text="x = «h.float()»")
    b.ran("softmax", x)
    mismatch(b, x)
    assert best(b) == ("wide island", ["x.to(torch.float16)"])


def test_a_cast_in_which_nothing_was_computed_is_no_island():
    b = program()
    mismatch(b, b.made(*WIDE, explicit=True, text="x = «h.float()»"))
    assert best(b) == ("birth", ["h.to(torch.float16)"])


def test_kept_wide():
    b = program()
    average = b.made(*WIDE, explicit=True, text="a = «w.float()»")
    b.ran("add_", average, aten="add_.Tensor")
    half = b.made("float16", "cast", explicit=True)
    b.refused(
        "linear", half, average.as_parameter("weight"), model=model("float16", half.event),
        text="y = «torch.func.functional_call(net, weights, (x,))»",
    )  # fmt: skip
    assert best(b) == ("kept wide", [])
    assert list(tried(b)) == ["kept wide"]  # a narrower sum would lose what is added


def test_frozen_half():
    b = program()
    weight = b.made("float16", "cast", explicit=True, text="teacher = «Net().half()»")
    soft = b.ran("linear", weight, weight.as_parameter("weight"), module="teacher")
    student = b.ran("linear", b.made("float32"), module="net")
    b.ran("mm", phase="backward", of=student.producer)
    wide = tuple(Parameter(f"layer.{n}", "float32", 100, -1) for n in range(3))
    b.refused("mse", soft, student, arguments=("input", "target"), model=wide, text="loss = «mse(soft, out)»")
    assert best(b) == ("frozen half", ["soft.to(torch.float32)"])


BACKWARD = """
import torch
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return {forward}
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return {backward}
net = nn.Linear(4, 8, bias=False)
w = net.weight
x = torch.randn(2, 4, requires_grad=True)
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = Scaled.apply(x, w)
    loss = {loss}
loss.backward()
"""


@pytest.mark.parametrize(
    ("forward", "backward", "loss"),
    [
        ("F.linear(x, w)", "g @ w, g.t() @ x", "y.float().square().mean()"),
        ("x @ w.t()", "torch.mm(g, w), torch.mm(g.t(), x)", "F.mse_loss(y.float(), torch.zeros(2, 8))"),
        ("torch.matmul(x, w.t())", "g.matmul(w), g.t().matmul(x)", "y.to(torch.float32).sum()"),
    ],
)
def test_hand_written_backward(tmp_path, forward, backward, loss):
    text = BACKWARD.format(forward=forward, backward=backward, loss=loss)
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)")
    found = program.findings[0]
    # a gradient has the dtype of what it is the gradient of: the forward's result, and not the cast behind it
    assert found.culprit.origin.kind == "autocast"
    assert [edit.after.partition("(")[0] for edit in found.fix.edits] == [
        "@torch.amp.custom_fwd",
        "@torch.amp.custom_bwd",
    ]
    assert next(iter(remedies.candidates(case_of(program.with_text)))).strategy == "hand written backward"


@pytest.mark.parametrize("made", ["torch.fft.fft(x)", "torch.polar(x.abs(), x)", "torch.complex(x, x)"])
def test_imaginary_part(tmp_path, made):
    """It is never cast away: not by a diff, not by healing."""
    text = f"x = torch.randn(2, 4)\nmodel = nn.Linear(4, 4)\ny = model({made})\n"
    p = programs.run(tmp_path, text, autofix=True)
    (first,) = remedies.candidates(case_of(p.with_text))
    assert first.strategy == "imaginary part" and not first.fix.edits
    assert ".real, .imag or .abs()" in p.findings[0].fix.change and p.error is not None


@pytest.mark.parametrize(("total", "proposed"), [("torch.exp(-size)", True), ("size.view(4)", False)])
def test_made_complex(tmp_path, total, proposed):
    """A cast of a view would be other memory than what is written into."""
    text = f"size = torch.linspace(0.1, 1, 4)\ntotal = {total}\ntotal.mul_(torch.polar(torch.ones(4), torch.ones(4)))\n"
    first = next(iter(remedies.candidates(case_of(programs.run(tmp_path, text).with_text))))
    assert (first.strategy == "made complex") is proposed
    if proposed:
        assert [edit.after for edit in first.fix.edits] == [f"{total}.cfloat()"]


def test_asked_in_the_call(tmp_path):
    text = """
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))
        def forward(self, x):
            y = F.linear(x.float(), self.weight)
            return y.to(x.dtype)
    Norm().to(torch.bfloat16)(torch.ones(2, 4).bfloat16())
    """
    first = next(iter(remedies.candidates(case_of(programs.run(tmp_path, text).with_text))))
    assert first.strategy == "asked in the call"
    assert [edit.after for edit in first.fix.edits] == ["self.weight.float()"]


def test_left_cast(tmp_path):
    text = """
    net = nn.Linear(4, 4).half()
    def use(x):
        if net.weight.dtype == torch.float16:
            net.float()
            x = x.float()
        return net(x)
    use(torch.ones(1, 4).half()), use(torch.ones(1, 4).half())
    """
    found = programs.run(tmp_path, text).findings[0]
    assert [edit.after for edit in found.fix.edits] == ["x.to(net.weight.dtype)"]
    first = next(iter(remedies.candidates(case_of(programs.run(tmp_path, text).with_text))))
    assert first.strategy == "left cast"


def test_leaves_part():
    b = program()
    rest = b.made("float32", "parameter", text="net = «Net()»")
    part = b.made("bfloat16", "cast", explicit=True, text="«net.block.bfloat16()»")
    y = b.ran("linear", part, part.as_parameter("block.weight"), module="net.block", text="y = «net.block(x)»")
    model = (Parameter("block.weight", "bfloat16", 999, part.event), Parameter("head.weight", "float32", 9, rest.event))
    head = rest.as_parameter("head.weight")
    b.refused("linear", y, head, module="net.head", model=model, text="z = «net.head(y)»")
    assert best(b) == ("leaves part", ["y.to(torch.float32)"])


# ---------------------------------------------------------------- where it was born


def test_unknown():
    b = program()
    b.refused("matmul", b.made("float16"))
    assert best(b) == ("unknown", [])


def test_leaves_autocast():
    b = program()
    b.line("with «torch.autocast('cpu')»:")
    h = b.made("bfloat16", "autocast", "linear", text="    h = «net(x)»")
    wide = tuple(Parameter(f"layer.{n}", "float32", 100, -1) for n in range(3))
    b.refused("linear", h, b.made("float32").as_parameter("weight"), model=wide, text="y = «head(h)»")
    assert best(b) == ("leaves autocast", ["net(x).to(torch.float32)"])


def test_default_dtype():
    b = program()
    at = b.line("«torch.set_default_dtype(torch.float64)»")
    mismatch(b, b.made("float64", default=at, text="x = «torch.ones(4)»"))
    name, edits = best(b)
    assert (name, edits) == ("default dtype", ["x.to(torch.float16)"])
    assert tried(b)["birth"].place.line == 2


def test_library_value():
    b = program()
    mismatch(b, b.made("float32", library="tables", text="x = «tables.make(4)»"))
    fix = tried(b)["library value"]
    assert best(b)[0] == "library value" and "tables.make()" in fix.why


def test_before_optimizer():
    b = program()
    state = b.made("float32")
    weight = b.made("float16", "cast", explicit=True, text="«net.half()»").as_parameter("weight", changed=True)
    b.refused("lerp_", state, weight, phase="optimizer", model=model("float16", weight.event))
    assert best(b) == ("before optimizer", [""]) and "before" in tried(b)["before optimizer"].why


def test_restored_state():
    b = program()
    grad = b.made("float32", "cast", explicit=True, text="grad = «p.grad.float()»")
    b.ran("lerp_", b.made("float32"), grad, phase="optimizer", text="«average.lerp_(grad, 0.1)»")
    b.ran("square", grad, phase="optimizer")
    restored = b.made("float16", "cast", explicit=True, text="«optimizer.load_state_dict(saved)»")
    b.refused("lerp_", restored, grad, phase="optimizer", module="", at=b.ops[0].place, run={"float16": 100})
    assert best(b) == ("restored state", []) and "after this" in tried(b)["restored state"].why


def test_like_what_it_meets():
    b = program()
    sent = b.made("int64", explicit=True, text="data = «torch.ones(3, dtype=torch.int64)»")
    buffer = b.made("float32", op="zeros", text="kept = «torch.zeros(3)»")
    b.refused(
        "all_gather",
        buffer,
        sent,
        code="DT117",
        arguments=("tensor_list", "tensor"),
        text="«all_gather(kept, data)»",
    )
    assert best(b) == ("like what it meets", ["torch.zeros(3, dtype=data.dtype)"])


@pytest.mark.parametrize(("op", "made"), [("index_add_", "zeros"), ("scatter_", "full"), ("index_copy_", "empty")])
def test_like_what_it_meets_where_another_call_met_another_dtype(op, made):
    """A line that runs with autocast and without: what it makes follows what is written into it."""
    b = program()
    messages = b.made("float32", text="messages = «torch.ones(3)»")
    into = b.made("float32", op=made, text=f"received = «torch.{made}(3)»")
    ran = b.ran(op, into, messages, module="net", text=f"«received.{op}(messages)»")
    narrowed = b.ran("linear", messages, out="bfloat16", autocast="cpu:bfloat16")
    b.refused(op, into, narrowed, arguments=("self", "source"), autocast="cpu:bfloat16", at=b.ops[ran.producer].place)
    assert best(b) == ("like what it meets", [f"torch.{made}(3, dtype=messages.dtype)"])


def test_ready_table():
    b = program()
    table = b.made("float32", text="t = «torch.arange(9.0)»")
    ready = b.ran("cos", table, text="t = «t.cos()»")
    half = b.made("float16", "cast", explicit=True)
    b.ran("mul", ready, half, out="float32", text="«t * h»")
    b.refused("matmul", ready, half, run={"float16": 100}, text="y = «t @ h»")
    assert best(b) == ("ready table", ["t.cos().to(torch.float16)"])


def test_a_padded_table_is_cast_where_it_is_joined():
    b = program()
    table = b.made("float32", text="t = «torch.arange(9.0)»")
    ready = b.ran("cos", table, text="t = «t.cos()»")
    joined = b.ran("cat", ready, b.made("float32", op="zeros"), text="t = «torch.cat([t, torch.zeros(1)])»")
    half = b.made("float16", "cast", explicit=True)
    b.ran("mul", joined, half, out="float32", text="«t * h»")
    b.refused("matmul", joined, half, run={"float16": 100}, text="y = «t @ h»")
    assert best(b) == ("ready table", ["torch.cat([t, torch.zeros(1)]).to(torch.float16)"])


def test_birth():
    b = program()
    mismatch(b, b.made("float32", text="x = «torch.ones(4, 4)»"))
    assert best(b) == ("birth", ["torch.ones(4, 4, dtype=torch.float16)"])


def test_birth_swapped():
    """The same weight and input the other way round: the weight's cast is the birth that is changed."""
    b = program()
    weight = b.made("float16", "cast", explicit=True, text="«net.half()»").as_parameter("odd")
    wide = b.made("float32", explicit=True)
    b.refused("linear", wide, weight, model=model("float32", wide.event), text="y = «net(x)»")
    assert best(b) == ("birth", ["net.to(torch.float32)"])


# ---------------------------------------------------------------- what only fix tries


def test_computed_in_float32():
    b = program()
    x = b.made("float16", explicit=True)
    b.refused("linalg_svd", x, code="DT109", wants="kernel", arguments=("A",), text="u = «torch.linalg.svd(x)» + 1")
    assert written(b, "computed in float32") == ["x.to(torch.float32)", "torch.linalg.svd(x).to(x.dtype)"]


def test_at_origin():
    b = program()
    x = b.made(*WIDE, explicit=True, text="x = «h.float()»")
    b.ran("softmax", x)
    mismatch(b, x)
    assert written(b, "birth") == ["h.to(torch.float16)"]  # after the island, which is shown


def test_on_its_path():
    b = program()
    x, wide = b.made("float16", explicit=True), b.made("float32", text="n = «torch.ones(4)»")
    mismatch(b, b.widened(x, wide, text="x = «x * n»"))
    assert written(b, "on its path") == ["(x * n).to(torch.float16)"]


def test_written_value():
    b = program()
    table, rows = b.made("float16", explicit=True), b.made("float32")
    b.refused("copy_", table, rows, arguments=("self", "src"), run={"float32": 100}, text="«table.copy_(rows)»")
    assert written(b, "written value") == ["rows.to(torch.float16)"] and "at call" not in tried(b)


def test_at_call():
    b = program()
    mismatch(b, b.made("float32", text="x = «torch.ones(4, 4)»"))
    assert written(b, "at call") == ["x.to(torch.float16)"]


def test_like_the_other():
    b = program()
    half = b.made("float16", "cast", explicit=True)
    b.refused("matmul", b.made("float32"), half, arguments=("self", "other"), run={"float16": 100}, text="y = «x @ h»")
    assert written(b, "like the other") == ["x.to(h.dtype)"]


def test_where_it_is_complete():
    b = program()
    x = b.made("float32", text="x = «torch.ones(4, 4)»")
    mismatch(b, x)
    assert "where it is complete" not in tried(b)  # no op computed it


def test_cast_of_all():
    b = program()
    b.made("float16", "cast", of=b.made("float32"), explicit=True, text="x = «x.to(d)»")
    ids = b.made("float16", "cast", of=b.made("int64"), explicit=True, text="ids = «ids.half()»")
    b.refused(
        "embedding", b.made("float16"), ids, arguments=("weight", "indices"), wants="integer", text="y = «f(w, ids)»"
    )
    assert "cast of all" not in tried(b)  # this line casts nothing else


def test_at_callers():
    b = program()
    mismatch(b, b.made("float32", text="x = «torch.ones(4, 4)»"))
    assert "at callers" not in tried(b)  # it was not passed on


def test_loaded_values():
    b = program()
    mismatch(b, b.made("float32", "load", text="x = net(«torch.load('w.pt')»)"))
    assert written(b, "loaded values")[0].startswith("{name: value.to(torch.float16)")


def test_own_lines():
    b = program()
    mismatch(b, b.made("float32", library="tables", text="x = «tables.make(4)»"))
    assert written(b, "own lines") == ["tables.make(4).to(torch.float16)"]


# ---------------------------------------------------------------- all of them


def test_needless():
    b = program()
    x = b.made("float16", text="x = «make()»")
    given = b.made("float32", "cast", of=x, explicit=True, text="x = «z.to(kind)»")
    mismatch(b, given)
    assert written(b, "needless") == ["z"]


def test_fused_path():
    """A real program: the fused path of an encoder in the other half dtype than autocast's."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, batch_first=True).bfloat16(), 1).eval()
    with pytest.raises(RuntimeError), dtypetrace.trace() as t, torch.no_grad(), torch.autocast("cpu", torch.float16):
        encoder(torch.randn(2, 4, 16, dtype=torch.bfloat16))
    assert t.findings[0].fix.why == "let autocast compute in bfloat16, as the weights are"


def test_every_strategy_is_tested_here():
    tested = set(re.findall(r"def test_(\w+)\(", Path(__file__).read_text("utf-8")))
    assert {s.__name__ for s in (*remedies.STRATEGIES, *remedies.FURTHER)} <= tested


RESTORED = """
import io
class Preconditioned(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.05})
        self.left = {}
    @torch.no_grad()
    def step(self):
        for i, p in enumerate(self.param_groups[0]["params"]):
            left = self.left.setdefault(i, torch.eye(p.shape[0]))
            p.sub_(left @ p.grad, alpha=0.05)
            self.left[i] = 0.9 * left + 0.1 * torch.eye(p.shape[0])
net = nn.Linear(6, 4, bias=False)
first, file = Preconditioned(net.parameters()), io.BytesIO()
for optimizer in (first, Preconditioned(net.parameters())):
    if optimizer is not first:
        torch.save({"left": {i: value.half() for i, value in first.left.items()}}, file)
        file.seek(0)
        optimizer.left = {int(i): value for i, value in torch.load(file)["left"].items()}
    net(torch.ones(3, 6)).square().mean().backward()
    optimizer.step()
"""


def test_a_state_that_the_program_loads_by_itself_is_cast_where_it_meets_the_gradient(tmp_path):
    found = follow(tmp_path, RESTORED)
    assert found.clean and "left.to(p.grad.dtype) @ p.grad" in found.text, found.text


PARTS = """
import io, torch
class Heavy(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if "ball" not in state:
                state["ball"] = torch.zeros_like(p.grad)
            p.add_(state["ball"].lerp_(p.grad, 0.5), alpha=-0.1)
def step(optimizer):
    net(torch.ones(3, 4).bfloat16()).square().mean().backward()
    optimizer.step()
torch.manual_seed(0)
net = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
first, second, file = Heavy(net.parameters(), {}), Heavy(net.parameters(), {}), io.BytesIO()
step(first)
torch.save([first.state[p]["ball"].float() for p in net.parameters()], file)
file.seek(0)
for p, ball in zip(net.parameters(), torch.load(file)):
    second.state[p]["ball"] = ball.clone()
step(second)
"""


def test_a_part_of_a_state_that_is_loaded_is_cast_where_it_is_stored(tmp_path):
    found = follow(tmp_path, PARTS)
    assert found.clean and 'second.state[p]["ball"] = ball.clone().to(torch.bfloat16)' in found.text, found.text


SERVER = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
before = net[0].weight.detach().clone()
local = {name: value + 1 for name, value in net.state_dict().items()}
for name, data in net.state_dict().items():
"""
MERGED = {
    "an average": "    update = (local[name] - data) * 0.5\n    data.add_(update)",
    "in one line": "    data.add_((local[name] - data) * 0.5)",
    "by an operator": "    update = 0.5 * (local[name] - data)\n    data += update",
    "a decay": "    factor = torch.full_like(data, 0.5, dtype=torch.float32)\n    data.mul_(factor)",
}


@pytest.mark.parametrize("merged", MERGED.values(), ids=MERGED)
def test_entries_of_several_dtypes_on_one_line_are_not_cut_to_integers(merged, tmp_path):
    found = follow(tmp_path, SERVER + merged)
    assert found.clean, found.text
    names = found.program.names
    assert not torch.equal(names["net"][0].weight, names["before"]) and names["net"][0].weight.any(), found.text


WIDE_COPY = """
import copy
torch.manual_seed(0)
net = nn.Linear(4, 8).to(torch.bfloat16)
average = copy.deepcopy(net).float()
shadow = [p.detach().float() for p in net.parameters()]
total = net.weight.detach().to(torch.float32)
"""
UPDATED = {
    "a state dict": "for name, value in net.state_dict().items():\n    average.state_dict()[name].lerp_(value, 0.1)",
    "a list": "for s, p in zip(shadow, net.parameters()):\n    s.lerp_(p.detach(), 0.1)",
    "a sum": "total.index_add_(0, torch.arange(8), net.weight.detach())",
}


@pytest.mark.parametrize("updated", UPDATED.values(), ids=UPDATED)
def test_into_widened(updated, tmp_path):
    found = follow(tmp_path, WIDE_COPY + updated)
    assert found.clean and found.text.startswith(WIDE_COPY.strip()), found.text


MADE_LIKE = """
net = nn.Linear(4, 8)
def lift(x, kind):
    out = {made}
    for chosen in (kind, ~kind):
        {write}
    return out
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = lift(torch.randn(6, 4), torch.arange(6) > 2)
"""


@pytest.mark.parametrize(
    ("made", "write"),
    [
        ("x.new_empty(len(x), 8)", "rows = net(x[chosen]); out[chosen] = rows"),
        ("torch.zeros_like(x.repeat(1, 2))", "rows = net(x[chosen]); out.index_copy_(0, chosen.nonzero()[:, 0], rows)"),
        ("x.new_zeros(len(x), 8)", "out.index_add_(0, chosen.nonzero()[:, 0], net(x[chosen]))"),
    ],
)
def test_what_is_written_into_a_tensor_that_was_made_like_another_is_cast(made, write, tmp_path):
    found = follow(tmp_path, MADE_LIKE.format(made=made, write=write))
    assert found.clean and f"out = {made}" in found.text and "x = torch" not in found.text, found.text
    assert "torch.randn(6, 4)," in found.text


def test_no_second_cast_widens_what_the_first_rounded():
    """Where a variable names the dtype of all weights, the cast is left out instead."""
    b = program()
    w = b.made("bfloat16", "cast", explicit=True, text="w = «make().to(kind)»")
    b.refused("linalg_svd", w, code="DT109", wants="kernel", text="torch.linalg.svd(«w»)")
    proposed = [
        c.fix for c in remedies.candidates(case_of(b.recording)) if not checks.forbidden(case_of(b.recording), c.fix)
    ]
    edits = [edit.after for fix in proposed for edit in fix.edits]
    assert "make()" in edits and "make().to(kind).to(torch.float32)" not in edits


def test_divided_into():
    b = program()
    ids, into = b.made("int64"), b.made("int64", text="rows = «torch.empty(3, dtype=torch.long)»")
    given = {"code": "DT111", "wants": "other", "dtypes": (("result", "float32"), ("destination", "int64"))}
    b.refused("div", ids, into, **given, arguments=("input", "out"), text="«torch.div(ids, 5, out=rows)»")
    assert best(b) == ("divided into", ['torch.div(ids, 5, out=rows, rounding_mode="floor")'])
