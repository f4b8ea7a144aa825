"""Which operand has the wrong dtype, how severe that is, and what is reported: the judgement's principles one by one, each with its sides swapped."""

from __future__ import annotations

import dataclasses

import programs
import pytest

from dtypetrace import rules
from dtypetrace.records import Event, Frame, Parameter, Place, Recording, Refused, Witness
from dtypetrace.rules import culprits

HALVES = ("float16", "bfloat16")
PAIRS = [(a, b) for a in ("float32", *HALVES) for b in ("float32", *HALVES) if a != b] + [
    ("float32", "float64"),
    ("float64", "float32"),
]


def judged(tmp_path, text: str, **dtypes: str):
    """The culprit's finding; the line that is expected to be the origin ends in `#!`."""
    for name, dtype in dtypes.items():
        text = text.replace(f"<{name}>", f"torch.{dtype}")
    program = programs.run(tmp_path, text)
    f = program.only
    assert f.culprit is not None
    assert program.at(f.culprit.origin.place).endswith("#!"), (
        f.culprit.name,
        program.at(f.culprit.origin.place),
        f.notes,
    )
    return f


# ---------------------------------------------------------------- the model agrees with itself

NET = "net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)).to(<a>)\n"


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_an_input_against_the_whole_model(a, b, tmp_path):
    f = judged(tmp_path, NET + "x = torch.ones(2, 4, dtype=<b>)  #!\nnet(x)", a=a, b=b)
    assert (f.culprit.name, f.culprit.dtype, f.culprit.holder) == ("input", b, None)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_one_layer_against_its_model(a, b, tmp_path):
    f = judged(tmp_path, NET + "net[1].to(<b>)  #!\nnet(torch.ones(2, 4, dtype=<a>))", a=a, b=b)
    assert (f.culprit.name, f.culprit.dtype, f.culprit.holder) == ("1.weight", b, "parameter")
    assert f.module == "net.1"


@pytest.mark.parametrize("half", HALVES)
def test_a_norm_that_was_not_cast_back(half, tmp_path):
    """The norm computes in float32 on purpose and nobody casts back: the next layer raises, the norm's line is meant."""
    text = """
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4).float(), nn.Linear(4, 4))
    net[0].to(<a>), net[2].to(<a>)
    h = net[0](torch.ones(2, 4, dtype=<a>))
    h = net[1](h.float())  #!
    net[2](h)
    """
    assert judged(tmp_path, text, a=half).culprit.name == "input"


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_a_bias_against_its_model(a, b, tmp_path):
    text = NET + "net[2].bias.data = net[2].bias.data.to(<b>)  #!\nnet(torch.ones(2, 4, dtype=<a>))"
    assert judged(tmp_path, text, a=a, b=b).culprit.name == "2.bias"


def test_the_larger_part_of_the_model_decides(tmp_path):
    """One small float16 layer in a large float32 model has the wrong dtype, one small float32 layer in a large float16 model too."""
    text = "net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4), nn.Linear(4, 4)).to(<a>)\nnet[2].to(<b>)  #!\nnet(torch.ones(2, 64, dtype=<a>))"
    assert judged(tmp_path, text, a="float16", b="float32").culprit.name == "2.weight"
    assert judged(tmp_path, text, a="float32", b="float16").culprit.name == "2.weight"


# ---------------------------------------------------------------- the run's parameters


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_outside_any_module_the_run_s_parameters_decide(a, b, tmp_path):
    text = NET + "h = net(torch.ones(2, 4, dtype=<a>))\nw = torch.ones(4, 4, dtype=<b>)  #!\nh @ w"
    f = judged(tmp_path, text, a=a, b=b)
    assert f.culprit.dtype == b
    f = judged(tmp_path, text.replace("h @ w", "w @ h.T"), a=a, b=b)  # the same, from the other side
    assert f.culprit.dtype == b


# ---------------------------------------------------------------- autocast


@pytest.mark.parametrize("compute", HALVES)
def test_under_autocast_its_dtype_is_right(compute, tmp_path):
    text = """
    table = torch.zeros(3, 4)  #!
    net = nn.Linear(4, 4)
    with torch.autocast("cpu", <a>):
        h = net(torch.ones(2, 4))
        table.index_add(0, torch.tensor([0, 1]), h)
    """
    f = judged(tmp_path, text, a=compute)
    assert f.culprit.dtype == "float32"
    assert any("autocast" in note for note in f.notes)


def test_what_left_an_autocast_region_is_wrong_outside(tmp_path):
    text = """
    net = nn.Linear(4, 4)
    head = nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        h = net(torch.ones(2, 4))  #!
    head(h)
    """
    f = judged(tmp_path, text)
    assert (f.culprit.name, f.culprit.origin.kind) == ("input", "autocast")


def test_what_ran_under_autocast_says_nothing_of_the_same_op_without(tmp_path):
    text = """
    net = nn.Linear(4, 4).half()
    with torch.autocast("cpu", torch.bfloat16):
        h = net(torch.ones(2, 4))  #!
        with torch.autocast("cpu", enabled=False):
            net(h)
    """
    assert judged(tmp_path, text).culprit.dtype == "bfloat16"


def test_an_op_knows_the_autocast_it_ran_under(tmp_path):
    text = "net = nn.Linear(4, 4)\nnet(torch.ones(2, 4))\nwith torch.autocast('cpu', torch.bfloat16):\n    net(torch.ones(2, 4))"
    ops = programs.run(tmp_path, text).recording.ops
    assert {(op.outputs, op.autocast) for op in ops if op.aten.startswith("addmm")} == {
        (("float32",), ""), (("bfloat16",), "cpu:bfloat16"),
    }  # fmt: skip


# ---------------------------------------------------------------- a default yields to a plan


@pytest.mark.parametrize("half", HALVES)
def test_a_module_that_was_forgotten(half, tmp_path):
    """Everything was made half but one module, which merely fell out of the default."""
    text = """
    encoder = nn.Linear(4, 4).to(<a>)
    blur = nn.Linear(4, 4, bias=False)  #!
    x = torch.ones(2, 4, dtype=<a>)
    blur(encoder(x))
    """
    assert judged(tmp_path, text, a=half).culprit.holder == "parameter"


@pytest.mark.parametrize("half", HALVES)
def test_one_lone_cast_is_no_plan(half, tmp_path):
    text = """
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = torch.ones(2, 4).to(<a>)  #!
    net(x)
    """
    assert judged(tmp_path, text, a=half).culprit.name == "input"


def test_to_the_dtype_of_another_repeats_a_decision_and_makes_none(tmp_path):
    text = """
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = net[0](torch.ones(2, 4)).half()  #!
    y = torch.zeros(2, 4).to(x.dtype)
    net(y)
    """
    assert judged(tmp_path, text).culprit.name == "input"


# ---------------------------------------------------------------- on purpose, by majority


@pytest.mark.parametrize(("a", "b"), [("float16", "float32"), ("float64", "float32"), ("bfloat16", "float32")])
def test_without_parameters_a_default_dtype_is_wrong(a, b, tmp_path):
    text = "q = torch.ones(2, 4, dtype=<a>)\nw = torch.ones(4, 4)  #!\n"
    assert judged(tmp_path, text + "q @ w", a=a).culprit.dtype == b
    assert judged(tmp_path, text + "w @ q.T", a=a).culprit.dtype == b


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_the_one_of_three_that_differs(a, b, tmp_path):
    text = "q, k = torch.ones(1, 1, 4, 4, dtype=<a>), torch.ones(1, 1, 4, 4, dtype=<a>)\nv = torch.ones(1, 1, 4, 4, dtype=<b>)  #!\n"
    for order, name in (("q, k, v", "value"), ("v, q, k", "query"), ("q, v, k", "key")):
        assert judged(tmp_path, text + f"F.scaled_dot_product_attention({order})", a=a, b=b).culprit.name == name


# ---------------------------------------------------------------- the roles that a message gives


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("x = torch.zeros(2, dtype=torch.int32)  #!\nF.cross_entropy(torch.ones(2, 4), x)", "target", "int64"),
        ("x = torch.tensor([0.0])  #!\ntorch.ones(2, 4)[x]", "index", "int64"),
        ("x = torch.ones(2)  #!\nF.embedding(x, torch.ones(4, 4))", "input", "int64"),
        ("x = torch.ones(2, 4)  #!\ny = torch.zeros(2, 4)\ntorch.where(x, y, y)", "condition", "bool"),
        ("x = torch.ones(2, 4)  #!\ntorch.zeros(2, 4).masked_fill(x, 0.0)", "mask", "bool"),
    ],
)
def test_an_argument_of_the_wrong_kind(text, name, wanted, tmp_path):
    f = judged(tmp_path, text)
    assert f.culprit.name == name
    assert wanted in f.fix.why


def test_an_index_is_no_rival_in_an_indexed_write(tmp_path):
    text = "net = nn.Linear(4, 4).half()\nbuffer = torch.zeros(4, 4)  #!\nbuffer[torch.tensor([0])] = net(torch.ones(1, 4).half())"
    f = judged(tmp_path, text)
    assert f.culprit.name == "self" and "float16" in f.fix.why


def test_an_op_without_a_kernel_blames_no_origin_but_asks_for_a_cast(tmp_path):
    f = judged(tmp_path, "x = torch.ones(2, 2).half()  #!\ntorch.linalg.svd(x)")
    assert (f.code, f.culprit.dtype) == ("DT109", "float16")
    assert f.fix.place == f.site


def test_a_scalar_that_does_not_fit(tmp_path):
    f = judged(tmp_path, "LOW = -1e9  #!\nx = torch.ones(2).half()\nx.masked_fill(x > 0, LOW)")
    assert (f.code, f.culprit.name, f.culprit.dtype) == ("DT110", "-1e9", "python float")
    assert f.culprit.origin.kind == "conversion"


# ---------------------------------------------------------------- severity, count, order

COLLIDES = "torch.ones(2, 2).half() @ torch.ones(2, 2)"


def test_what_leaves_is_an_error(tmp_path):
    assert programs.run(tmp_path, COLLIDES).only.severity == "error"


def test_what_the_program_handles_is_a_note_with_a_count(tmp_path):
    f = programs.run(
        tmp_path, f"for i in range(3):\n    try:\n        {COLLIDES}\n    except RuntimeError:\n        pass"
    ).only
    assert (f.severity, f.count) == ("note", 3)


def test_what_is_handled_in_every_step_is_a_warning(tmp_path):
    f = programs.run(
        tmp_path,
        f"""
        p = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([p])
        for i in range(3):
            try:
                {COLLIDES}
            except RuntimeError:
                pass
            p.sum().backward()
            optimizer.step()
        """,
    ).only
    assert (f.severity, f.count) == ("warning", 3)


def test_the_one_that_ended_the_run_comes_first(tmp_path):
    text = f"""
    for i in range(5):
        try:
            {COLLIDES}
        except RuntimeError:
            pass
    torch.linalg.svd(torch.ones(2, 2).half())
    """
    found = programs.run(tmp_path, text).findings
    assert [(f.severity, f.code) for f in found] == [("error", "DT109"), ("note", "DT101")]


def test_an_exception_that_is_no_refusal_is_no_finding(tmp_path):
    for text in (
        "torch.ones(2, 3) @ torch.ones(2, 3)",
        "raise ValueError('expected Float but got Half')",
        "torch.ones(2).nothing",
    ):
        program = programs.run(tmp_path, text)
        assert program.error is not None
        assert not [f for f in program.findings if f.severity == "error"] or "expected" in text


def test_a_check_in_python_is_named_by_its_function(tmp_path):
    text = """
    def kernel(q, w):
        if q.dtype != w.dtype:
            raise ValueError(f"expected dtype {q.dtype} but got {w.dtype}")
    kernel(torch.ones(2), torch.ones(2).half())
    """
    f = programs.run(tmp_path, text).only
    assert (f.severity, f.op) == ("error", "kernel")
    assert f.culprit.name == "w"


def test_inside_a_transform(tmp_path):
    """The tensors that vmap and grad hand in have no storage of their own."""
    for transform in ("vmap", "grad"):
        program = programs.run(
            tmp_path, f"torch.func.{transform}(lambda a: (a @ torch.ones(4).half()).sum())(torch.ones(2, 4))"
        )
        assert program.error is not None and not [text for text in program.recording.not_seen if "internal" in text]
        assert program.only.severity == "error"


def test_what_leaves_a_scripted_module_is_an_error(tmp_path):
    f = programs.run(tmp_path, "net = torch.jit.script(nn.Linear(4, 4)).half()\nnet(torch.ones(2, 4))").only
    assert f.severity == "error"


def test_an_error_of_ours_does_not_replace_the_program_s(tmp_path, monkeypatch):
    def broken(*_args, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr(rules, "find", broken)
    program = programs.run(tmp_path, COLLIDES)
    assert isinstance(program.error, RuntimeError) and "same dtype" in str(program.error)


def test_an_ignored_code_is_left_out(tmp_path):
    assert programs.run(tmp_path, COLLIDES, ignore=frozenset({"DT101"})).findings == ()
    assert programs.run(tmp_path, COLLIDES, ignore=frozenset({"DT102"})).findings


def test_a_clean_run_finds_nothing(tmp_path):
    text = """
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    for i in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.ones(2, 4)).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    program = programs.run(tmp_path, text)
    assert program.error is None
    assert not [f for f in program.findings if f.severity != "note"]


# ---------------------------------------------------------------- on recordings made by hand


def place(line: int) -> Place:
    return Place((Frame("/p/train.py", line, "main", True, 1, line, 9),))


PLACES = tuple(place(n) for n in range(1, 10))
STEPS = (
    Event("factory", "ones", 0, "", (), "float32"),
    Event("cast", "half", 1, "", ("float32",), "float16", explicit=True),
)
REFUSED = Refused(
    op="linear",
    aten="addmm.default",
    phase="forward",
    module="net",
    place=4,
    witnesses=(
        Witness(0, "input", "float32", (2, 4), "cpu", 0),
        Witness(1, "weight", "float16", (4, 4), "cpu", 1, name="weight", holder="parameter"),
    ),
    exception="RuntimeError",
    message="no",
    pattern="p",
    code="DT101",
    wants="agree",
    left=True,
)


def found(*refused: Refused, **options):
    return rules.find(Recording(PLACES, STEPS, (), refused), **options)


def test_the_same_cause_is_one_finding():
    twice = found(REFUSED, dataclasses.replace(REFUSED, count=4, left=False))
    assert len(twice) == 1
    assert (twice[0].count, twice[0].severity) == (5, "error")


def test_two_sites_are_two_findings():
    assert len(found(REFUSED, dataclasses.replace(REFUSED, place=5, left=False))) == 2


def test_the_model_s_parameters_decide_less_those_in_dispute():
    model = (
        Parameter("weight", "float16", 10**6, 1),
        Parameter("bias", "float32", 4, 0),
        Parameter("norm.weight", "float32", 4, 0),
    )
    f = found(dataclasses.replace(REFUSED, model=model))[0]
    assert f.culprit.name == "weight"  # a million numbers, but their dtype is what is judged
    model = (
        Parameter("weight", "float16", 16, 1),
        Parameter("bias", "float16", 4, 1),
        Parameter("norm.weight", "float32", 1, 0),
    )
    assert found(dataclasses.replace(REFUSED, model=model))[0].culprit.name == "input"


def test_complex_weights_that_a_cast_of_the_module_left_behind_are_wrong(tmp_path):
    """``.double()`` reaches real weights only: they show the precision, even if they are few numbers."""
    text = """
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))
            self.weight = nn.Parameter(torch.randn(9, dtype=torch.cfloat))  <weight>
        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x * self.scale) @ torch.diag(self.weight))
    net = Filter()
    x = torch.ones(2, 16, dtype=torch.float64)  <input>
    net(x)
    """
    f = judged(
        tmp_path, text.replace("Filter()\n", "Filter().double()\n").replace("<weight>", "#!").replace("<input>", "")
    )
    assert (f.culprit.dtype, f.culprit.origin.op) == ("complex64", "randn")
    assert any("parameters of the model are float64" in note for note in f.notes)
    # and where nothing was cast, it is the input that is too wide
    f = judged(tmp_path, text.replace("x * self.scale", "x").replace("<weight>", "").replace("<input>", "#!"))
    assert f.culprit.dtype == "complex128" and "complex" not in f.fix.why


def test_swapping_the_dtypes_swaps_the_culprit():
    """With nothing else to go by, what was cast on purpose is right, on whichever side it stands."""
    one = found(REFUSED)[0]
    swapped = (
        dataclasses.replace(REFUSED.witnesses[0], dtype="float16", event=1),
        dataclasses.replace(REFUSED.witnesses[1], dtype="float32", event=0),
    )
    other = found(dataclasses.replace(REFUSED, witnesses=swapped))[0]
    assert (one.culprit.index, other.culprit.index) == (0, 1)
    assert one.culprit.dtype == other.culprit.dtype == "float32"


@pytest.mark.parametrize("wants", ["agree", "kernel", "integer", "bool", "float", "fits", "other"])
def test_a_refusal_of_which_nothing_was_seen_is_still_a_finding(wants):
    bare = dataclasses.replace(REFUSED, witnesses=(), wants=wants, place=-1)
    f = found(bare)[0]
    assert f.culprit is None and f.operands == () and f.flow == () and f.fix is None
    assert f.site == Place() and f.exception.message == "no"


@pytest.mark.parametrize("model", ["float32", "bfloat16", "float64"])
def test_where_nothing_was_seen_or_one_complex_number_the_model_still_speaks(model):
    parameters = (Parameter("bias", model, 4, 0),)
    for witnesses in ((), (Witness(0, "input", "complex64", (2,), "cpu", -1),)):
        verdict = culprits.verdict(
            Recording(PLACES, STEPS, (), ()), dataclasses.replace(REFUSED, witnesses=witnesses, model=parameters)
        )
        assert verdict.expected == model and f"parameters of the model are {model}" in verdict.reason


@pytest.mark.parametrize("wants", ["agree", "kernel", "integer", "bool", "float", "fits", "other"])
@pytest.mark.parametrize(
    "dtypes",
    [
        ("float32",),
        ("int64", "float32"),
        ("int64", "int32"),
        ("bool", "complex64"),
        ("python float", "float16"),
        ("float32",) * 3,
    ],
)
def test_every_mixture_of_operands_is_judged(wants, dtypes):
    witnesses = tuple(Witness(i, f"a{i}", d, (2,), "cpu", -1) for i, d in enumerate(dtypes))
    f = found(dataclasses.replace(REFUSED, witnesses=witnesses, wants=wants))[0]
    assert f.culprit in f.operands


def test_the_flow_ends_where_it_hurts():
    f = found(REFUSED)[0]
    assert [s.place for s in f.flow] == [PLACES[0], PLACES[4]]
    assert (f.flow[-1].source, f.flow[-1].to) == ("float32", "float16")
    assert f.flow[-1].place == f.site


# ---------------------------------------------------------------- what to change


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("x = torch.ones(2, 4)  #!", "factory", "float16"),
        ("import numpy as np\nx = torch.from_numpy(np.ones((2, 4)))  #!", "conversion", "float16"),
        ("x = torch.arange(8).view(2, 4) / 8  #!", "promotion", "float16"),
        (
            "x = torch.ones(2, 4, dtype=torch.bfloat16).float()  #!",
            "cast",
            "float16",
        ),  # nothing was computed in float32
    ],
)
def test_the_remedy_is_at_the_birth_and_names_the_dtype(text, kind, said, tmp_path):
    f = judged(tmp_path, "net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()\n" + text + "\nnet(x)")
    assert f.culprit.origin.kind == kind
    assert f.fix.place == f.culprit.origin.place
    assert said in f.fix.why
    assert f.fix.alternatives


def test_a_dtype_that_was_chosen_on_purpose_is_left_and_brought_back_where_it_is_used(tmp_path):
    text = "net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()\nx = torch.ones(2, 4, dtype=torch.bfloat16).float()  #!\nx = x / x.norm()\nnet(x)"
    f = judged(tmp_path, text)
    assert f.culprit.origin.kind == "cast" and f.fix.place == f.site
    assert "on purpose" in f.fix.why and f.fix.alternatives


def test_the_scaler_s_remedy_is_a_plan(tmp_path):
    text = """
    p = nn.Parameter(torch.ones(4).half())
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD([p])
    scaler.scale((p * 2).sum()).backward()
    scaler.unscale_(optimizer)
    """
    f = programs.run(tmp_path, text).only
    assert (f.code, f.phase) == ("DT116", "optimizer")
    assert f.fix.kind == "plan" and "float32" in f.fix.why


def test_the_scaler_s_remedy_is_an_edit_where_autocast_stands_ready(tmp_path):
    text = """
    import torch
    net = nn.Linear(4, 2)
    net.weight.data = net.weight.data.half()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD([net.weight])
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(torch.ones(2, 4)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    """
    f = next(f for f in programs.run(tmp_path, text).findings if f.code == "DT116")
    assert [edit.after for edit in f.fix.edits] == ["net.weight.data.to(torch.float32)"]


LIBRARY = """
from torch import nn

class Mixin(nn.Module):
    def to(self, *args, **kwargs):
        return super().to(*args, **kwargs)

class Net(Mixin):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.parametrize(
    ("cast", "after"),
    [
        ("net.to('cpu', dtype=half)", "net.to('cpu')"),
        ("net.to(torch.device('cpu'), half)", "net.to(torch.device('cpu'))"),
        ("net.to(half)", ""),
    ],
)
def test_a_cast_that_a_library_s_own_method_made_is_left_out_for_the_weights_that_are_trained_alone(
    cast, after, tmp_path
):
    """Another model that the same method of the library cast stays in half, and so does its input."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "mixing.py").write_text(LIBRARY)
    text = f"""
    import sys, torch
    sys.path.insert(0, {str(folder)!r})
    sys.modules.pop("mixing", None)
    import mixing
    sys.path.pop(0)
    half = torch.float16
    coder, net = mixing.Net(), mixing.Net()
    coder.to(half)
    {cast}
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(net.parameters())
    with torch.no_grad():
        x = coder(torch.ones(2, 4, dtype=half))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(x).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    """
    f = next(f for f in programs.run(tmp_path, text).findings if f.code == "DT116")
    assert [edit.after.strip() for edit in f.fix.edits] == [after], f.fix.why


def test_a_word_that_a_caller_passes_is_not_changed_where_that_would_refuse_more(tmp_path):
    """The key of a table of dtypes, and no dtype itself: what is replayed is the cast that it chooses."""
    text = """
    import copy, torch
    def prepare(model, precision):
        return model.to({"bf16": torch.bfloat16, "no": torch.float32}[precision])
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    mean = copy.deepcopy(net)
    net = prepare(net, "bf16")
    net(torch.ones(2, 4).bfloat16())
    with torch.no_grad():
        for slow, fast in zip(mean.parameters(), net.parameters()):
            slow.lerp_(fast.detach(), 0.1)
    """
    f = next(f for f in programs.run(tmp_path, text).findings if f.code == "DT106")
    assert [edit.after for edit in f.fix.edits] == ["fast.detach().to(slow.dtype)"], f.fix.why


def test_the_cast_that_a_refusal_goes_back_to_is_reported_once(tmp_path):
    text = """
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()
    for p in net.parameters():
        p.data = p.data.float()
        p.data = p.data.half()  #!
    net(torch.ones(2, 4).half()).sum().backward()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(net.parameters())
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    """
    assert [f.code for f in programs.run(tmp_path, text).findings if f.severity != "note"] == ["DT116"]


def test_python_code_in_a_backward_pass_goes_by_its_own_names(tmp_path):
    text = """
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return x @ w
        @staticmethod
        def backward(ctx, grad):
            (w,) = ctx.saved_tensors
            wide = grad * torch.ones(4)  #!
            return wide @ w.t(), None
    net = nn.Linear(4, 4).half()
    Double.apply(net(torch.ones(2, 4).half()), torch.ones(4, 4).half()).sum().backward()
    """
    f = judged(tmp_path, text)
    assert f.phase == "backward" and [o.shown for o in f.operands] == ["wide", "w.t()"]


def test_what_the_engine_runs_keeps_torch_s_names(tmp_path):
    text = "net = nn.Linear(4, 2)\ny = torch.ones(3, 2, dtype=torch.float64)  #!\nF.huber_loss(net(torch.ones(3, 4)), y).backward()"
    f = judged(tmp_path, text)
    assert f.phase == "backward" and f.culprit.shown == "target"


def test_what_one_line_calls_inside_torch_is_no_earlier_run(tmp_path):
    """An attention's three projections run on one line: the first is no earlier run of the second."""
    text = "a = nn.MultiheadAttention(4, 1, kdim=4, vdim=4)\nw = torch.ones(2, 4).half()  #!\na(torch.ones(2, 4), w, w)"
    assert not any("earlier calls" in note for note in judged(tmp_path, text).notes)
    f = judged(
        tmp_path,
        "net = nn.Linear(4, 4)\nx = torch.ones(2, 4)\ndef call(x):\n    net(x)\ncall(x)\nw = x.half()  #!\ncall(w)",
    )
    assert any("earlier calls" in note for note in f.notes)


# ---------------------------------------------------------------- what is meant to be so

GENERATE = """
def generate(model, x, hook):
    scores = model(x).to(copy=True, dtype=<w>)
    return hook(scores).argmax(-1)
"""


@pytest.mark.parametrize(("a", "b"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_what_a_library_passes_to_a_callback_is_right(a, b, tmp_path):
    """The model is of the callback's dtype; what the library made of its result is not the program's to change."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "handing.py").write_text("import torch\n" + GENERATE.replace("<w>", f"torch.{b}"))
    text = f"""
    import sys, torch
    sys.path.insert(0, {str(folder)!r})
    sys.modules.pop("handing", None)
    import handing
    sys.path.pop(0)
    net = nn.Linear(4, 4).to(<a>)
    bonus = torch.ones(1, 2, dtype=net.weight.dtype)  #!
    handing.generate(net, torch.ones(1, 4, dtype=<a>), lambda scores: scores.scatter_add(1, torch.tensor([[0, 2]]), bonus))
    """
    f = judged(tmp_path, text, a=a)
    # the dtype is a variable's: no literal is written over it
    assert (f.culprit.dtype, f.fix.edits[0].after) == (a, "bonus.to(scores.dtype)")


@pytest.mark.parametrize(
    ("made", "blamed"),
    [("torch.from_numpy(np.ones(v.shape))", "0.weight"), ("torch.ones(v.shape, dtype=torch.float64)", "input")],
)
def test_a_float64_that_a_model_owes_to_numpy_alone_is_no_decision(made, blamed, tmp_path):
    text = f"""
    import numpy as np
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net.load_state_dict({{k: {made} for k, v in net.state_dict().items()}}, assign=True)
    net(torch.ones(1, 4))
    """
    assert programs.run(tmp_path, text).only.culprit.name == blamed
