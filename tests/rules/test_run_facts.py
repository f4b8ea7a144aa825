"""Silent changes of dtype, principle by principle: what is a warning, what is a note, what is nothing, and how far it reaches.

A line that is expected to be the origin ends in `#!`.
"""

from __future__ import annotations

import programs
import pytest
import torch

import dtypetrace
from dtypetrace.records import Input, Op, Reach
from dtypetrace.rules import run_facts
from dtypetrace.tables import operators

HALVES = ("float16", "bfloat16")
NET = "torch.manual_seed(0)\nnet = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(<half>)\nx = torch.randn(4, 8).to(<half>)\n"


def run(tmp_path, text: str, half: str = "float16", **options) -> programs.Program:
    program = programs.run(tmp_path, text.replace("<half>", f"torch.{half}"), **options)
    assert program.error is None, program.error
    assert not program.trace._watch.recorder.broken, program.recording.not_seen
    return program


def found(program, code: str, severity: str):
    """The one finding; its origin is the line that says so."""
    f = program.only
    assert (f.code, f.severity) == (code, severity), program.trace
    assert program.at(f.culprit.origin.place).endswith("#!"), (program.at(f.culprit.origin.place), program.trace)
    return f


# ---------------------------------------------------------------- promotions


@pytest.mark.parametrize("half", HALVES)
def test_a_matmul_that_ran_wide_is_a_warning(half, tmp_path):
    text = NET + "scale = torch.full((8,), 0.5)  #!\nh = net(x) * scale\nh = h @ h.t()\nh.to(<half>)"
    f = found(run(tmp_path, text, half), "DT201", "warning")
    assert (f.kind, f.op, f.culprit.shown, f.culprit.dtype) == ("promotion", "mul", "scale", "float32")
    assert f.reach == Reach(ops=3, flops=2 * 4 * 4 * 8, bytes=4 * (32 + 32 + 16))  # mul, t, mm


def test_whichever_side_has_the_wrong_dtype_is_the_culprit(tmp_path):
    """The operands swapped, and the models: a float16 tensor in a float32 run widens nothing that was meant to be narrow."""
    for product in ("net(x) * scale", "scale * net(x)"):
        f = found(
            run(tmp_path, NET + f"scale = torch.full((8,), 0.5)  #!\nh = {product}\nh @ h.t()"), "DT201", "warning"
        )
        assert f.culprit.dtype == "float32"
    wide = NET.replace(".to(<half>)", "")
    assert run(tmp_path, wide + "scale = torch.full((8,), 0.5).half()\nh = net(x) * scale\nh @ h.t()").findings == ()


def test_what_would_have_been_wide_anyway_is_not_in_the_reach(tmp_path):
    text = (
        NET
        + "scale = torch.full((8,), 0.5)  #!\nh = net(x) * scale\nwide = net(x).float()\nwide @ h.t()\n(h + 1) @ (h + 1).t()"
    )
    f = found(run(tmp_path, text), "DT201", "warning")
    assert f.reach.flops == 2 * 4 * 4 * 8  # the second product alone: the first has an operand that was cast on purpose


def test_it_ends_where_something_narrows_it(tmp_path):
    text = NET + "scale = torch.full((8,), 0.5)  #!\nh = (net(x) * scale).to(<half>)\nh @ h.t()"
    f = found(run(tmp_path, text), "DT201", "note")
    assert f.reach.ops == 1 and f.reach.flops == 0
    assert any("until to() cast back at program.py" in note for note in f.notes)


def test_a_number_or_a_tensor_without_dimensions_widens_nothing(tmp_path):
    text = NET + "h = net(x) * torch.tensor(0.5) * 2.0\nh @ h.t()"
    assert run(tmp_path, text).findings == ()


@pytest.mark.parametrize(
    "island",
    [
        "h = net(x).float().softmax(-1).to(<half>)",
        "h = net(x).softmax(-1, dtype=torch.float32).to(<half>)",
        "h = F.layer_norm(net(x).float(), (8,)).to(<half>)",
        "q = net(x).float()\nh = ((q @ q.t()).softmax(-1) @ q).to(<half>)",
        "q = net(x).float()\nbias = torch.zeros(4, 4).to(<half>)\nh = ((q @ q.t() + bias) @ q).to(<half>)",
        "loss = F.mse_loss(net(x).float(), torch.zeros(4, 8))",
        "loss = (net(x) - torch.zeros(4, 8)).square().mean()",
    ],
)
def test_an_island_is_no_warning(island, tmp_path):
    assert [f for f in run(tmp_path, NET + island).findings if f.severity != "note"] == []


def test_the_stream_of_later_modules_is_a_warning_without_any_matmul(tmp_path):
    text = """
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))
            self.lin = nn.Linear(8, 8)

        def forward(self, x):
            return x + self.scale * self.lin(x.to(self.lin.weight.dtype))

    net = nn.Sequential(*(Block() for _ in range(4))).half()
    for block in net:
        block.scale = nn.Parameter(torch.ones(8))  #!
    net(torch.ones(2, 8).half())
    """
    f = found(run(tmp_path, text), "DT201", "warning")
    assert f.reach.flops == 0 and f.count == 4 and f.culprit.holder == "parameter"


def test_float64_that_nobody_asked_for_is_a_warning_and_one_that_was_is_not(tmp_path):
    text = "import numpy as np\nnet = nn.Linear(4, 1)\ny = torch.from_numpy(np.ones((3, 1)))  #!\nF.mse_loss(net(torch.ones(3, 4)), y).backward()"
    found(run(tmp_path, text), "DT201", "warning")
    asked = text.replace("torch.from_numpy(np.ones((3, 1)))", "torch.ones(3, 1, dtype=torch.float64)")
    found(run(tmp_path, asked), "DT201", "note")


def test_autocast_widens_and_narrows_as_it_should(tmp_path):
    text = "net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))\nx = torch.randn(4, 8)\n"
    text += "with torch.autocast('cpu', <half>):\n    h = x + net(x)\n    h = torch.cat([net(h), torch.ones(4, 8)], 1)\n    (h @ h.t()).float().sum().backward()"
    assert run(tmp_path, text, "bfloat16").findings == ()


def test_a_promotion_that_led_to_a_collision_is_reported_once(tmp_path):
    program = programs.run(
        tmp_path, (NET + "mask = torch.ones(8)  #!\nnet(net(x) * mask)").replace("<half>", "torch.float16")
    )
    assert [f.kind for f in program.findings] == ["collision"]


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize(("between", "severity"), [
    (".clone()", "warning"), (".flatten().view(4, 8)", "warning"), ("[:2]", "warning"), (".abs()", None), (".softmax(-1)", None), (".sum(0)", None),
])  # fmt: skip
def test_what_lies_between_the_casts_decides(between, severity, tmp_path):
    program = run(tmp_path, NET + f"for _ in range(2):\n    h = net(x).float(){between}.to(<half>)  #!")
    if severity is None:
        assert program.findings == ()
    else:
        assert found(program, "DT202", severity).count == 2


def test_a_value_that_is_used_wide_as_well_makes_no_round_trip(tmp_path):
    assert run(tmp_path, NET + "wide = net(x).float()\nh = wide.to(<half>)\nwide.square().mean()").findings == ()


def test_a_cast_whose_results_are_cast_back_only_now_and_then_makes_no_round_trip(tmp_path):
    layers = (
        "w = torch.randn(8, 8)\nkept, h = [], torch.randn(2, 8)\nfor _ in range(3):\n    kept.append((h @ w).half())\n"
    )
    used = layers + "    h = kept[-1].float()\nout = h.half()"
    assert run(tmp_path, NET + used).findings == ()


def test_a_cast_to_a_narrower_dtype_and_back_is_no_round_trip(tmp_path):
    assert run(tmp_path, "net = nn.Linear(8, 8)\nh = net(torch.ones(2, 8)).half().clone().float()").findings == ()


def test_the_fix_of_a_round_trip_takes_the_cast_away(tmp_path):
    program = run(tmp_path, NET + "kept = [net(x).float() for _ in range(2)]  #!\nh = torch.cat(kept).half()")
    (edit,) = found(program, "DT202", "warning").fix.edits
    assert (edit.before, edit.after) == ("net(x).float()", "net(x)")


def test_values_that_the_same_lines_cast_there_and_back_are_one_round_trip(tmp_path):
    lines = "for _ in range(2):\n    a, b = net(x).float(), (x + 1).float()  #!\n    a, b = a.half(), b.half()"
    f = found(run(tmp_path, NET + lines), "DT202", "warning")
    assert f.count == 4 and [(e.before, e.after) for e in f.fix.edits] == [
        ("net(x).float()", "net(x)"),
        ("(x + 1).float()", "(x + 1)"),
    ]
    assert "the same lines cast `x + 1` to float32 and back, too" in f.notes


CAST_BY_HAND = """
class Cast(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))

net = Cast(8, 8)  #!
optimizer = torch.optim.SGD(net.parameters(), 0.5)
for _ in range(ROUNDS):
    for _ in range(BATCHES):
        net(torch.ones(2, 8).half()).float().sum().backward()
    STEP
"""


def cast_by_hand(tmp_path, rounds, batches, step="optimizer.step()"):
    text = CAST_BY_HAND.replace("ROUNDS", str(rounds)).replace("BATCHES", str(batches))
    return run(tmp_path, text.replace("STEP", step))


def test_a_weight_that_is_cast_at_each_call_and_one_that_changes_between(tmp_path):
    assert found(cast_by_hand(tmp_path, 1, 4, "pass"), "DT205", "warning").count == 8
    assert cast_by_hand(tmp_path, 4, 1).findings == ()


AUTOCAST = """
net = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))FROZEN  #!
x = torch.randn(ROWS, 32)
with torch.GRADIENTS(), torch.autocast("cpu", dtype=<half>):
    for _ in range(6):
        x = net(x)
"""


@pytest.mark.parametrize(("gradients", "frozen", "rows", "severity"), [
    ("no_grad", ".requires_grad_(False)", 1, "warning"), ("enable_grad", ".requires_grad_(False)", 1, "warning"), ("inference_mode", "", 1, "warning"),
    ("no_grad", ".requires_grad_(False)", 200, "note"), ("no_grad", "", 1, None), ("enable_grad", "", 1, None),
])  # fmt: skip
def test_weights_that_autocast_does_not_keep(gradients, frozen, rows, severity, tmp_path):
    """torch decides which; so many casts were counted. They matter where few rows meet large weights."""
    program = run(
        tmp_path,
        AUTOCAST.replace("GRADIENTS", gradients).replace("FROZEN", frozen).replace("ROWS", str(rows)),
        "bfloat16",
    )
    if severity is None:
        assert program.findings == ()
        return
    f = found(program, "DT205", severity)
    assert (f.count, f.reach.bytes, f.culprit.name) == (24, 6 * 2 * 2 * (32 * 32 + 32), "0.weight")


def test_a_weight_that_another_module_takes_stays_wide(tmp_path):
    """An embedding's weight that is the head's, too: cast, it would make what all layers compute with narrow."""
    text = """
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.mix, self.head = nn.Embedding(8, 32), nn.Linear(32, 32), nn.Linear(32, 8, bias=False)  #!
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.mix(self.table(ids)))

    net = Tied().requires_grad_(False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(6):
            net(torch.tensor([0]))
    """
    f = found(run(tmp_path, text), "DT205", "warning")
    assert "leave head.weight in float32: another module takes it, too" in f.notes
    assert f.fix.why.startswith("cast the parameters of `mix` to bfloat16 once")


def test_weights_that_a_run_trains_stay_wide(tmp_path):
    """A frozen base that is cast once a step costs what a trained one costs; a trained one is evaluated as it is."""
    base = """
    net = nn.Linear(32, 32)FROZEN  #!
    head = nn.Linear(32, 2)
    optimizer = torch.optim.SGD([p for m in (net, head) for p in m.parameters() if p.requires_grad], 0.1)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = head(net(torch.randn(1, 32))).float().sum()
        loss.backward()
        optimizer.step()
    """
    assert found(run(tmp_path, base.replace("FROZEN", ".requires_grad_(False)")), "DT205", "note").count == 6
    evaluated = (
        base.replace("FROZEN", "")
        + """
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(10):
            net(torch.randn(1, 32))
    """
    )
    f = found(run(tmp_path, evaluated), "DT205", "note")
    assert f.count == 20 and "stays float32" in f.fix.why
    # the program's own casts, in each of several batches between two steps
    f = found(cast_by_hand(tmp_path, 3, 4), "DT205", "note")
    assert f.fix.why.startswith("nothing to change: the optimizer trains") and not f.fix.edits


def test_weights_of_one_shape_in_one_place_are_counted_each_by_itself(tmp_path):
    text = """
    weights = nn.ParameterList([nn.Parameter(torch.randn(8, 8)) for _ in range(6)])
    x = torch.randn(2, 8)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for w in weights:
            x = F.linear(x, w)
    """
    assert run(tmp_path, text).findings == ()


# ---------------------------------------------------------------- downcasts


def test_a_write_into_a_destination_of_the_wrong_dtype(tmp_path):
    text = "net = nn.Linear(8, 8)\nkept = torch.zeros(4, 8, dtype=torch.float16)  #!\nwith torch.no_grad():\n    kept[:2] = net(torch.ones(2, 8))"
    f = found(run(tmp_path, text), "DT203", "warning")
    assert (f.kind, f.op) == ("downcast", "setitem")
    narrow = (
        text.replace("nn.Linear(8, 8)", "nn.Linear(8, 8).half()").replace("net(torch.ones(2, 8))", "torch.rand(2, 8)")
        + "\nnet(kept)"
    )
    found(run(tmp_path, narrow), "DT203", "note")


def test_a_sum_in_place_loses_what_a_copy_does_not(tmp_path):
    text = (
        NET + "total = torch.zeros(8, dtype=<half>)  #!\nwith torch.no_grad():\n    for _ in range(3):\n        WRITE"
    )
    found(run(tmp_path, text.replace("WRITE", "total += net(x).float().sum(0)")), "DT203", "warning")
    found(run(tmp_path, text.replace("WRITE", "total.copy_(torch.rand(8) + net(x).float().sum(0))")), "DT203", "note")


def test_adapters_that_are_merged_are_added_once_to_each_weight(tmp_path):
    text = """
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))).bfloat16()
    net(torch.ones(1, 8).bfloat16())
    for _ in range(TIMES):
        for layer in net:
            layer.weight.data += torch.ones(8, 8)
    """
    assert [f.severity for f in run(tmp_path, text.replace("TIMES", "1")).findings] == ["note"]
    assert [f.severity for f in run(tmp_path, text.replace("TIMES", "6")).findings] == ["warning"]


@pytest.mark.parametrize("made", ["x.new_zeros(8)", "torch.zeros_like(x[0])", "torch.zeros_like(x)[0]"])
@pytest.mark.parametrize("in_line", [True, False])
def test_a_sum_made_like_a_right_tensor_is_the_fault_of_its_line(made, in_line, tmp_path):
    """Where a tensor has the wrong dtype, what is made like it has it, too, and the first is the culprit."""
    text = f"""
    net = nn.Linear(8, 8){".half()" if in_line else ""}
    x = torch.randn(4, 8).half()  {"" if in_line else "#!"}
    with torch.no_grad():
        net(x if {in_line} else x.float())
        total = {made}  {"#!" if in_line else ""}
        for _ in range(4):
            total += torch.ones(8)
    """
    f = found(run(tmp_path, text), "DT203", "warning")
    assert f.culprit.origin.kind == ("factory" if in_line else "cast")


@pytest.mark.parametrize(
    "after", ["", "print(max((m - p.float()).abs().max() for m, p in zip(master, net.parameters())))"]
)
def test_master_weights_get_no_finding(after, tmp_path):
    text = (
        NET
        + """
master = [p.detach().float() for p in net.parameters()]
for _ in range(3):
    net(x).float().sum().backward()
    with torch.no_grad():
        for wide, p in zip(master, net.parameters()):
            wide -= 0.1 * p.grad.float()
            p.grad = None
            p.copy_(wide)
"""
        + after
    )
    assert run(tmp_path, text).findings == ()


def test_a_load_is_a_note_and_a_warning_where_it_is_widened_again(tmp_path):
    text = "state = {k: v.clone() for k, v in nn.Linear(4, 4).state_dict().items()}\nnet = nn.Linear(4, 4).half()  #!\nnet.load_state_dict(state)\n"
    found(run(tmp_path, text + "net(torch.ones(1, 4).half())"), "DT203", "note")
    found(run(tmp_path, text + "net.float()(torch.ones(1, 4))"), "DT203", "warning")


def test_a_gradient_that_the_engine_casts_is_a_note_and_its_mirror_nothing(tmp_path):
    text = """
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s):
            ctx.save_for_backward(s)
            return x * s.to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    net = nn.Linear(8, 8).bfloat16()
    s = torch.full((8,), 0.5)  #!
    Scale.apply(net(torch.ones(2, 8).bfloat16()), s).float().sum().backward()
    """
    assert found(run(tmp_path, text), "DT203", "note").phase == "backward"
    assert (
        run(tmp_path, text.replace("ctx.saved_tensors[0], None", "ctx.saved_tensors[0].to(g.dtype), None")).findings
        == ()
    )


# ---------------------------------------------------------------- tables

ROTARY = """
rate = 0.1 ** torch.linspace(0, 4, 4)
rate = RATE
angle = torch.outer(torch.arange(LENGTH, dtype=torch.float32), rate.float())
turn = angle.cos(), angle.sin()
"""


@pytest.mark.parametrize(
    ("dtype", "length", "reported"),
    [("bfloat16", 256, 0), ("bfloat16", 300, 1), ("float16", 300, 0), ("float16", 2100, 1), ("float32", 2100, 0)],
)
def test_frequencies_hold_as_many_positions_as_their_dtype_distinguishes(dtype, length, reported, tmp_path):
    program = run(tmp_path, ROTARY.replace("RATE", f"rate.to(torch.{dtype})  #!").replace("LENGTH", str(length)))
    assert len(program.findings) == reported
    if reported:
        assert found(program, "DT204", "warning").kind == "downcast"


def test_integers_are_judged_by_what_they_were(tmp_path):
    text = "t = torch.tensor([3, LARGEST])\nangle = t.bfloat16()[:, None] * torch.tensor([1.0, 0.1]).bfloat16()  #!\nangle.cos()"
    assert run(tmp_path, text.replace("LARGEST", "200")).findings == ()
    found(run(tmp_path, text.replace("LARGEST", "900")), "DT204", "warning")


def test_data_may_pass_a_sine_or_a_product(tmp_path):
    text = (
        NET
        + "h = torch.sin(net(x) * torch.arange(8))\nnet(torch.ones(600, 8).to(<half>)).cos()\nnet(x).softmax(-1).cumprod(-1)"
    )
    assert run(tmp_path, text, "bfloat16").findings == ()


def test_a_schedule_multiplied_up(tmp_path):
    text = "beta = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float16)  #!\nkept = (1 - beta).cumprod(0)"
    found(run(tmp_path, text), "DT204", "warning")
    assert (
        run(tmp_path, text.replace("(1 - beta)", "(1 - beta.float())")).findings == ()
    )  # what is small was rounded, not what is near 1
    assert run(tmp_path, text.replace(", dtype=torch.float16", "")).findings == ()


@pytest.mark.parametrize(
    ("between", "largest", "reported"),
    [("", 3000, 1), (".clone()[0]", 3000, 1), ("", 2000, 0), (" / 2", 3000, 0), ("", 70_000, 1)],
)
def test_integers_that_come_back_as_integers(between, largest, reported, tmp_path):
    text = f"ids = torch.tensor([[5, {largest}]])\nhalf = ids.half()  #!\nback = (half{between}).long()"
    program = run(tmp_path, text)
    assert len(program.findings) == reported
    if reported:
        fix = found(program, "DT204", "warning").fix
        assert not fix.edits and "3" in fix.why, "the same cast may be right for the rest of the batch"


def test_positions_that_are_counted_from_a_mask(tmp_path):
    text = "mask = torch.MASK(2, 900, dtype=torch.long)\nplace = mask.bfloat16().cumsum(-1)  #!"
    found(run(tmp_path, text.replace("MASK", "ones"), numerics=True), "DT204", "warning")
    assert run(tmp_path, text.replace("MASK", "zeros"), numerics=True).findings == ()
    assert run(tmp_path, text.replace("MASK", "ones").replace("bfloat16()", "float()"), numerics=True).findings == ()


def test_the_largest_integer_is_read_once_and_by_nobody_else(tmp_path):
    text = """
    from torch.utils._python_dispatch import TorchDispatchMode
    seen = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    counts = torch.arange(700)
    with Count():
        counts.bfloat16()
    """
    program = run(tmp_path, text)
    assert [(op.op, op.peak) for op in program.recording.ops] == [("arange", None), ("bfloat16", 700.0)]
    assert len(program.names["seen"]) == 1


def test_reading_an_open_trace_adds_no_op():
    with dtypetrace.trace() as t:
        torch.arange(700).bfloat16()
        assert [op.peak for op in t.recording.ops] == [None, 700.0]
        assert len(t.recording.ops) == 2


# ---------------------------------------------------------------- what they share


def test_the_dominant_dtype_is_the_model_s_own(tmp_path):
    text = (
        "big, small = nn.Linear(64, 64), nn.Linear(8, 8).half()\nbig(torch.ones(1, 64))\nsmall(torch.ones(1, 8).half())"
    )
    seen = run_facts.Run(run(tmp_path, text).recording)
    by_model = {op.module: seen.dominant(op) for op in seen.ops}
    assert by_model == {"big": "float32", "small": "float16", "": "float32"}


def test_two_models_that_one_function_calls_by_the_same_name(tmp_path):
    """A reference and a policy, a teacher and a student: each is judged by its own parameters."""
    text = """
    import copy
    class Turned(nn.Linear):
        def forward(self, x):
            return super().forward(x) * torch.ones(8, dtype=x.dtype)
    class Wave(nn.Module):
        def forward(self, x):
            return (x.sin() + x.cos()).tanh()
    student = nn.Sequential(Turned(8, 8), Wave())
    teacher = copy.deepcopy(student).bfloat16()
    def score(model, x):
        return model(x)
    for _ in range(3):
        score(teacher, torch.ones(4, 8).bfloat16())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            score(student, torch.ones(4, 8))
    """
    program = run(tmp_path, text)
    assert {op.module for op in program.recording.ops} == {"", "model.0", "model.1"}
    assert not [f for f in program.findings if f.severity != "note"], program.trace
    assert {op.outputs[0] for op in program.recording.ops if op.op == "mul"} == {"bfloat16", "float32"}


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        ("torch.ones(2, 3) @ torch.ones(3, 4)", 2 * 2 * 3 * 4),
        ("F.linear(torch.ones(5, 3), torch.ones(4, 3), torch.ones(4))", 2 * 5 * 3 * 4),
        ("torch.ones(6, 2, 3) @ torch.ones(6, 3, 4)", 6 * 2 * 2 * 3 * 4),
        ("F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))", 2 * (4 * 6 * 6) * (3 * 3 * 3)),
        ("F.conv_transpose2d(torch.ones(1, 3, 8, 8), torch.ones(3, 4, 2, 2), stride=2)", 2 * (3 * 8 * 8) * (4 * 2 * 2)),
        ("F.scaled_dot_product_attention(*[torch.ones(1, 2, 5, 4)] * 3)", 2 * 2 * (2 * 5 * 5 * 4)),
        ("torch.ones(2, 3) * 2", 0),
    ],
)
@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.inference_mode()"])
def test_flops_are_those_of_the_mathematics(call, flops, mode, tmp_path):
    program = run(tmp_path, f"with {mode}:\n    {call}")
    assert sum(operators.flops(op) for op in program.recording.ops) == flops


def test_destinations():
    def op(aten, inputs=2):
        return Op("f", aten, "forward", "", -1, (Input("float32"),) * inputs, ("float32",), 1)

    assert [
        operators.destination(op(a))
        for a in ("add_.Tensor", "add.Tensor", "add.out", "__and__.Scalar", "_foreach_add_.List")
    ] == [0, -1, 1, -1, 0]
    assert operators.name_of(op("add_.Tensor")) == operators.name_of(op("add.out")) == "add"


def test_an_average_that_is_kept_wide_is_no_promotion(tmp_path):
    text = """
        net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        averages = [p.detach().clone() for p in net.parameters()]
        net.bfloat16()
        for _ in range(3):
            net(torch.randn(4, 8, dtype=torch.bfloat16)).float().square().mean().backward()
            for average, p in zip(averages, net.parameters()):
                with torch.no_grad():
                    WRITTEN
    """
    kept = programs.run(tmp_path, text.replace("WRITTEN", "average.sub_(0.1 * (average - p))"))
    assert kept.error is None and kept.findings == ()
    shown = programs.run(tmp_path, text.replace("WRITTEN", "far = (0.1 * (average - p)).abs().sqrt() + 1"))
    assert [(f.code, f.severity) for f in shown.findings] == [("DT201", "note")]


def test_a_library_s_own_round_trip_is_a_note_and_the_program_s_a_warning(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "wide.py").write_text("def out(x):\n    return x.float()\n")
    own = NET + "wide = lambda x: x.float()  #!\nfor _ in range(2):\n    h = wide(net(x)).clone().to(<half>)"
    found(run(tmp_path, own), "DT202", "warning")
    theirs = own.replace(
        "wide = lambda x: x.float()  #!",
        f"import sys\nsys.path.insert(0, {str(folder)!r})\nfrom wide import out as wide\nsys.path.pop(0)",
    )
    f = run(tmp_path, theirs).only
    assert (f.code, f.severity) == ("DT202", "note") and "the cast to float32 is the library's own" in f.notes


def test_a_bracketed_cast_of_a_round_trip_is_taken_away_whole(tmp_path):
    program = run(tmp_path, NET + "kept = [(net(x) + 1).float() for _ in range(2)]  #!\nh = torch.cat(kept).half()")
    (edit,) = found(program, "DT202", "warning").fix.edits
    assert (edit.before, edit.after) == ("(net(x) + 1).float()", "(net(x) + 1)")


def test_saved_tensors_that_hooks_keep_wide_are_a_round_trip(tmp_path):
    text = """
    net = nn.Linear(8, 8).to(<half>)
    def pack(t):
        return t if isinstance(t, nn.Parameter) else t.float()  #!
    def unpack(t):
        return t if isinstance(t, nn.Parameter) else t.to(<half>)
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = net(torch.ones(4, 8, dtype=<half>)).sum()
        loss.backward()
    """
    assert found(run(tmp_path, text), "DT202", "warning").count == 2
