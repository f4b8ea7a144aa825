"""Spot checks: which calls are computed in higher precision too, and that nothing stale is compared."""

from __future__ import annotations

import warnings

import programs
import pytest
import torch

import dtypetrace
from dtypetrace.reference import spot_checks


def checked(tmp_path, text: str, **options) -> dict[str, float]:
    """The error of each op that was checked, by its name."""
    program = programs.run(tmp_path, text, numerics=True, **options)
    assert program.error is None, program.error
    assert not [n for n in program.recording.not_seen if "spot" in n], program.recording.not_seen
    assert not program.recording.precisions
    return {program.recording.ops[p.op].op: p.total for p in program.recording.spot_checks}


def test_digits_that_a_cast_rounds_away_and_a_difference_needs(tmp_path):
    text = """
    torch.manual_seed(0)
    points = (1500 + torch.randn(64, 3)).half()
    offset = points - points.mean(0)
    wide = offset.float() * 2
    """
    errors = checked(tmp_path, text)
    assert errors["half"] < 1e-3 and min(errors["sub"], errors["float"], errors["mul"]) > 0.2


def test_large_tensors_backward_and_the_optimizer_are_left_alone(tmp_path):
    text = """
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    """
    assert set(checked(tmp_path, text)) == {"ones", "linear", "sum"}
    large = f"x = torch.ones({spot_checks.LARGEST_OWN + 1}).half() * 3"
    assert checked(tmp_path, large) == {}
    half = "w = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)\n(w * w).sum().backward()"
    assert set(checked(tmp_path, half)) == {"ones", "mul", "sum"}


def test_products_that_are_too_large_and_what_is_picked_leave_the_other_large_tensors_checked(tmp_path, monkeypatch):
    text = """
    x = torch.randn(600, 600).bfloat16()
    for _ in range(3):
        product = x @ x
    picked = x[:, :500].gather(1, torch.zeros(600, 1, dtype=torch.int64))
    shares = x.softmax(-1)
    """
    monkeypatch.setattr(spot_checks, "LARGE_ELEMENTS", 3 * 600 * 600)
    monkeypatch.setattr(spot_checks, "LARGEST_OWN_PRODUCT", 1 << 24)
    errors = checked(tmp_path, text)
    assert "matmul" not in errors and {"gather", "softmax"} <= set(errors)


def test_float32_is_checked_on_lines_of_the_users_own(tmp_path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "library.py").write_text("def product(x):\n    return x.prod()\n")
    text = """
    import sys
    sys.path.insert(0, str(__import__("pathlib").Path(__file__).parent / "site-packages"))
    import library
    chances = torch.full((64,), 0.1)
    one, other = library.product(chances), chances.cumprod(0)[-1]
    """
    errors = checked(tmp_path, text)
    assert "prod" not in errors and errors["cumprod"] > 0


def test_float32_is_checked_in_two_steps_and_in_some_calls_and_half_tensors_after_that(tmp_path, monkeypatch):
    text = """
    w = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], 0.1)
    for step in range(4):
        (w.tanh() if step < 2 else w.sin()).sum().backward()
        optimizer.step()
    y = w.detach().bfloat16().cos()
    """
    errors = checked(tmp_path, text)
    assert {"tanh", "sin", "cos"} <= set(errors)
    for bound in ("CALLS_IN_FLOAT32", "PASSED_IN_FLOAT32"):
        with monkeypatch.context() as patch:
            patch.setattr(spot_checks, bound, 1)
            errors = checked(tmp_path, text)
            assert "cos" in errors and "tanh" not in errors and "sin" not in errors


def test_after_two_steps_only_what_had_not_run_before_is_checked_in_two_steps(tmp_path, monkeypatch):
    text = """
    w = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([w], 0.1)
    for step in range(9):
        (w.tanh() if step < 3 else w.sin() if step < 6 else w.cos()).sum().backward()
        optimizer.step()
    """
    program = programs.run(tmp_path, text, numerics=True)
    calls = {program.recording.ops[p.op].op: p.calls for p in program.recording.spot_checks}
    assert calls["tanh"] == calls["sin"] == calls["cos"] == 2
    monkeypatch.setattr(spot_checks, "ROUNDS", 1)
    errors = checked(tmp_path, text)
    assert "tanh" in errors and "sin" not in errors


def test_what_a_table_was_before_its_cast_is_known_after_the_steps(tmp_path):
    text = """
    w = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], 0.1)
    levels = (1 - torch.linspace(1e-4, 0.02, 100)).cumprod(0).half()
    for step in range(4):
        (w * levels[step + 50]).sum().backward()
        optimizer.step()
    left = 1 - levels[:1].float()
    """
    assert checked(tmp_path, text)["rsub"] > 0.1
    changed = text.replace("optimizer.step()", "optimizer.step()\n        levels.mul_(1.0)")
    assert checked(tmp_path, changed)["rsub"] < 1e-6, "what was written since is the reference"


def test_a_write_in_float32(tmp_path):
    errors = checked(tmp_path, "x = torch.full((8,), 1e-30)\nfor _ in range(3):\n    x.mul_(1e-9)\ny = x * 1e30")
    assert errors["mul"] > 0.9, "what x held before the first write is the reference's beginning"


def test_what_a_call_that_is_not_checked_writes_to_has_no_reference_left(tmp_path, monkeypatch):
    monkeypatch.setattr(spot_checks, "CALLS_OF_ONE", 2)
    text = """
    x = torch.full((8,), 1 / 3).half()
    for _ in range(4):
        x.add_(1000)
    y = x - 4000
    """
    errors = checked(tmp_path, text)
    assert errors["sub"] == 0, "its operand was written to unseen: the program's own values are its reference"


@pytest.mark.parametrize(("name", "most", "left"), [("CALLS", 1, {"ones", "half"}), ("MOST_BYTES", 100, {"ones"})])
def test_the_number_of_calls_and_the_memory_are_bounded(name, most, left, tmp_path, monkeypatch):
    monkeypatch.setattr(spot_checks, name, most)
    assert set(checked(tmp_path, "x = torch.ones(64)\ny = x.half()\nz = y * 3")) == left


def test_the_values_are_those_of_an_unwatched_run(tmp_path):
    torch.manual_seed(0)
    plain = (torch.randn(16).half().cumsum(0) - 3).tanh_()
    text = "torch.manual_seed(0)\nresult = (torch.randn(16).half().cumsum(0) - 3).tanh_()"
    program = programs.run(tmp_path, text, numerics=True)
    assert torch.equal(program.names["result"], plain) and program.recording.spot_checks


@pytest.mark.parametrize("options", [{"precision": "values"}, {"precision": "reference"}], ids=["values", "reference"])
@pytest.mark.parametrize("action", ["always", "error"])
def test_a_call_that_is_repeated_warns_once(options, action):
    x = torch.ones(2, dtype=torch.float16)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # torch says most of its warnings once in a process
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.filterwarnings(action, module=r".*\.reference\.calls")  # what a program does to all its modules
            with dtypetrace.trace(**options) as trace:
                y = x.index_reduce(0, torch.tensor([0, 1]), x * 3, "amax") / 3
        assert [str(w.message).partition("(")[0] for w in warned] == ["index_reduce"]
        assert y.tolist() == [1, 1]
        assert not [n for n in trace.recording.not_seen if "index_reduce" in n], trace.recording.not_seen
    finally:
        torch.set_warn_always(always)


def test_a_float32_model_and_its_half_copy_are_compared(tmp_path):
    """Their difference is zero by structure: in higher precision only the rounding of the reference is left."""
    text = """
    import copy
    torch.manual_seed(0)
    exact = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    served = copy.deepcopy(exact).bfloat16()
    x = torch.randn(16, 8)
    with torch.no_grad():
        one, other = exact(x), served(x.bfloat16()).float() * 1
        print(((other - one).norm() / one.norm()).item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None and [f for f in program.findings if f.severity != "note"] == [], program.trace


def test_errors_are_followed_from_call_to_call(tmp_path):
    """One line moves several tensors: the errors of each come from the op that made it."""
    text = """
    def moved(x):
        return x.view(-1)
    one = moved(torch.rand(8).bfloat16() * 3)
    other = moved(torch.rand(8).bfloat16() + 3)
    seen = other.exp()
    """
    recording = programs.run(tmp_path, text, numerics=True).recording
    of = {recording.ops[p.op].op: p for p in recording.spot_checks}
    assert [recording.ops[n].op for n in of["exp"].above] == ["add"]
    assert [recording.ops[i.producer].op for i in recording.ops[of["exp"].op].inputs] == ["view"]


CAST_AFTER_TRAINING = """
torch.manual_seed(0)
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(4):
    net(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
net.bfloat16()
positions = torch.arange(4000, 4064).bfloat16()
angles = positions[:, None] * net.weight.abs().amax()
print(angles.float().sin().sum())
"""


def test_what_first_runs_after_the_steps_of_a_reference_is_checked(tmp_path):
    """Only that: an op which the reference has measured is not checked a second time."""
    program = programs.run(tmp_path, CAST_AFTER_TRAINING, numerics=True, reference=True, reference_steps=2)
    recording = program.recording
    measured, later = ({p.op for p in found} for found in (recording.precisions, recording.spot_checks))
    assert measured and later and not measured & later
    assert {"bfloat16", "to_copy"} & {recording.ops[n].op for n in later}
    assert [(f.code, f.culprit.origin.place.line) for f in program.findings if f.severity != "note"] == [
        ("DT204", program.line("arange"))
    ], program.findings


def test_a_reference_that_measures_alone_checks_nothing_after_it(tmp_path):
    """Without ``numerics`` nobody asked for checks."""
    program = programs.run(tmp_path, CAST_AFTER_TRAINING, reference=True, reference_steps=2)
    assert program.recording.precisions and not program.recording.spot_checks


def test_memory_that_an_operator_fills_in_part_is_not_compared(tmp_path):
    """CTC keeps its table for backward, of which it fills as much as each input is long."""
    text = """
    torch.manual_seed(0)
    scores = torch.randn(10, 4, 5).log_softmax(-1)
    words, lengths = torch.tensor([[1, 2, 3]] * 4), torch.tensor([5, 6, 7, 10])
    loss = F.ctc_loss(scores, words, lengths, torch.tensor([3, 3, 2, 1]), reduction="none")
    """
    program = programs.run(tmp_path, text, numerics=True)
    (found,) = (p for p in program.recording.spot_checks if program.recording.ops[p.op].op == "ctc_loss")
    assert found.elements == 4


OWN = """
@torch.library.custom_op("spot_checks::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x.float() * 2

"""


@pytest.mark.parametrize(
    "text",
    [
        OWN + "x = torch.linspace(0, 1, 64).bfloat16()\nleft = (twice(x).double() - x.double() * 2).abs()",
        OWN + "x = torch.linspace(0, 1, 64).bfloat16()\nleft = (twice(x) + 1 - (x.float() * 2 + 1)).abs()",
        "x = torch.linspace(0, 1, 64).bfloat16()\n"
        f"large = x.float().expand({spot_checks.LARGEST_OWN // 64 + 1}, 64).contiguous()\n"
        "left = (large.mean(0) - x.float()).abs()",
        "x = torch.linspace(0, 1, 64).bfloat16()\n"
        "twice = torch.compile(lambda x: x.float() * 2, backend='eager')\nleft = (twice(x) - x.float() * 2).abs()",
    ],
    ids=["an operator of the program's own", "and what is computed from it", "a large tensor", "compiled code"],
)
def test_what_was_computed_unseen_is_not_compared_with_the_references_of_its_operands(tmp_path, text):
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None and program.findings == ()
    ops = program.recording.ops
    (difference,) = [p for p in program.recording.spot_checks if ops[p.op].op == "sub"]
    assert difference.total < 1e-3


SAVED = """
import io, pickle
def through_a_file(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    buffer.seek(0)
    return torch.load(buffer)
torch.manual_seed(0)
net = nn.Linear(32, 32).half().float()
with torch.no_grad():
"""


@pytest.mark.parametrize(
    "compared",
    [
        "(net.weight - through_a_file(net.weight)).abs().max()",
        "(net.weight - pickle.loads(pickle.dumps(net.weight))).square().sum()",
        "F.mse_loss(net.weight, torch.tensor(net.weight.tolist()))",
        "(again(nn.Linear(32, 32), through_a_file(net.state_dict())).weight - net.weight).abs().max()",
    ],
    ids=["a file", "pickled", "numbers of Python", "another model"],
)
@pytest.mark.parametrize("options", [{"numerics": True}, {"reference": True}])
def test_a_copy_that_came_back_unseen_was_rounded_as_its_original(compared, options, tmp_path):
    text = f"again = lambda model, state: model.load_state_dict(state) and model\n{SAVED}    assert {compared} == 0\n"
    program = programs.run(tmp_path, text, **options)
    assert program.error is None and program.findings == ()


def test_a_weight_that_took_no_step_is_no_copy_of_what_it_was(tmp_path):
    text = """
    torch.manual_seed(0)
    net = nn.LayerNorm(32, dtype=torch.bfloat16)
    before = net.weight.detach().clone()
    for step in range(4):
        with torch.no_grad():
            net.weight.add_(1e-6)
    assert (net.weight - before).abs().max() == 0
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None and [f.code for f in program.findings] == ["DT307"]


TARGETS = """
import numpy as np
rows = np.random.default_rng(0).normal(size=(300, 4))
energies = {far} + 0.02 * np.tanh(rows @ np.ones(4))
features = torch.stack([torch.tensor(row, dtype=torch.float32) for row in rows])
def item(i):
    return torch.tensor(energies[i], dtype=torch.float32)  # BORN
targets = torch.stack([(item(i).double() - {far}).float() for i in range(300)])
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    (model(features).squeeze(-1) - targets).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("far", "lost"), [(1234567.0, True), (12.0, False)])
def test_targets_that_are_lost_before_a_model_learns_them(tmp_path, far, lost):
    """Of the features not each is followed, so nothing of theirs is known beside the targets."""
    program = programs.run(tmp_path, TARGETS.format(far=far), before="torch.manual_seed(0)", numerics=True)
    assert program.error is None
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == (["DT308"] if lost else [])
    assert all("# BORN" in program.at(f.culprit.origin.place) for f in found)


@pytest.mark.parametrize(
    "counted",
    [
        "torch.histc(y, 2048, float(y.min()), float(y.max()))",
        "torch.histogramdd(y.reshape(-1, 2), [64, 64], range=[float(b) for p in y.reshape(-1, 2).T for b in p.aminmax()])",
        "torch.histogramdd(y.reshape(-1, 2), [torch.stack([*p.aminmax()]) for p in y.reshape(-1, 2).T])",
    ],
)
def test_the_counts_of_a_histogram_are_decisions(tmp_path, counted):
    text = f"""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 16))
    for _ in range(3):
        y = model(torch.randn(1, 64)).detach()
        {counted}
    """
    assert max(checked(tmp_path, text).values()) < 1e-3


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    "rows", ["torch.unique(y, dim=0)", "torch.unique(y.t(), dim=1, return_inverse=True)[0]", "y.float().unique(dim=0)"]
)
def test_rows_that_a_rounding_puts_in_another_order_are_decisions(tmp_path, rows, reference):
    text = f"""
    torch.manual_seed(1)
    x = torch.linspace(0, 60, 500)[:, None]
    y = torch.cat([x.mul(0.0001).sin(), x.cos(), (x * 3).sin()], 1).bfloat16()
    seen = {rows}
    print(len(seen), seen.float().mean().item())
    """
    program = programs.run(tmp_path, text, numerics=True, reference=reference)
    measured = (*program.recording.spot_checks, *program.recording.precisions)
    assert all(p.total < 0.02 for p in measured if program.recording.ops[p.op].op == "unique")
