"""What compiled code costs, by the numbers of one call: with a reference, each finding gets its figure or is a note."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest
import torch

SICK = Path(__file__).parent / "compiled" / "sick"


@pytest.fixture(autouse=True)
def settings():
    threads = torch.get_num_threads()
    torch._dynamo.reset()
    yield
    torch.set_num_threads(threads)


def _found(tmp_path, text):
    program = programs.run(tmp_path, text, name="example.py", reference=True)
    assert program.error is None and not [f for f in program.recording.not_seen if "computed" in f]
    return [f for f in program.findings if f.code in ("DT206", "DT207", "DT406")]


def _costs(finding):
    return [n.removeprefix("in the one call that was computed again, ") for n in finding.notes if "in the one" in n]


LARGEST = """
import torch


@torch.compile
def score(x, w):
    return (x * w).amax(-1).float().sum()


torch.manual_seed(0)
x = {x}.bfloat16().requires_grad_()
w = torch.randn(64, 32).bfloat16().requires_grad_()
before = torch.random.get_rng_state()
score(x, w).backward()
assert torch.equal(before, torch.random.get_rng_state())
finite = x.grad.isfinite().all().item()
"""


@pytest.mark.slow
def test_a_finding_gets_its_figure_or_is_a_note(tmp_path):
    """Products by one are the same in 16 bits: compiled code compares them before their rounding, too, and it is no
    harm. A rounding at one line is enough for those that are not."""
    (sick,) = _found(tmp_path, LARGEST.format(x="torch.randn(64, 32)"))
    assert sick.severity == "warning"
    assert _costs(sick) == ["92.19% of a gradient is not finite; eager's is, and float64's"]
    torch._dynamo.reset()
    (healthy,) = _found(tmp_path, LARGEST.format(x="torch.ones(64, 32)"))
    assert healthy.severity == "note"
    assert _costs(healthy) == ["it does no harm: half of its results are within 0% of float64, in eager within 0%"]


COSTS = {
    "compensated_average": "what it writes is 100.00% of its size from that of eager, which rounds as the program asks",
    "dead_zone": "0.11% of the decisions of the backward are others than those of the forward",
    "fake_quantise": "a result is 0.02% of its size from that of eager, which rounds as the program asks",
    "hard_gate": "1.22% of the decisions of the backward are others than those of the forward",
    "inner_autocast": "80.47% of a gradient is not finite; in float64 it is",
    "nearest_code": "0.70% of the decisions are others than in float64, in eager 0.09%",
    "one_hot": "a result is 100.00% of its size from float64, that of eager 0%: eager is nearer",
    "pooled_amax": "100.00% of a gradient is not finite; eager's is, and float64's",
    "scaled_by_power": "80.27% of a result is not finite; in float64 it is",
    "split_matmul": "a result is 100.00% of its size from that of eager, which rounds as the program asks",
    "tie_count": "98.44% of a result is not finite; eager's is, and float64's",
}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COSTS)
def test_what_each_sick_program_costs(name, tmp_path):
    (found,) = _found(tmp_path, (SICK / f"{name}.py").read_text("utf-8"))
    assert found.severity == "warning" and _costs(found) == [COSTS[name]]


DRAWS = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8)).bfloat16()
out = torch.compile(model)(torch.randn(4, 8).bfloat16())
out.float().square().mean().backward()
after = torch.rand(1)
"""
NOISE = """
import torch

torch.compile(lambda x: x * torch.rand_like(x))(torch.ones(4).bfloat16())
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_dropout_has_the_mask_that_the_program_drew(tmp_path):
    program = programs.run(tmp_path, DRAWS, name="example.py", reference=True)
    alone = {}
    torch._dynamo.reset()
    exec(compile(DRAWS, "alone.py", "exec"), alone)
    assert torch.equal(program.names["after"], alone["after"]) and torch.equal(program.names["out"], alone["out"])
    (region,) = program.recording.regions
    assert region.measured and not [m for g in region.graphs for m in g.measured if m.compiled > 0.02]
    torch._dynamo.reset()
    program = programs.run(tmp_path, NOISE, name="example.py", reference=True)
    assert [f for f in program.recording.not_seen if "everything in it depends on random numbers" in f]


WRITES = """
import torch


@torch.compile
def update(state, x):
    state.mul_(0.5).add_(x)
    return state.sum()


state, x = torch.ones(8).bfloat16(), torch.arange(8).bfloat16() / 3
for _ in range(3):
    update(state, x)
total = (state.float() * 2).sum()
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_what_compiled_code_writes_is_no_error_of_the_program(tmp_path):
    """The call is computed again on copies, and the reference of the tensor begins anew."""
    program = programs.run(tmp_path, WRITES, name="example.py", reference=True)
    alone = {}
    torch._dynamo.reset()
    exec(compile(WRITES, "alone.py", "exec"), alone)
    assert torch.equal(program.names["state"], alone["state"])
    assert [r.measured for r in program.recording.regions] == [True]
    assert not [f for f in program.findings if f.severity != "note"]
