"""The lines to type where half weights are trained, on recordings made by hand."""

from __future__ import annotations

import pytest
import torch
from followed import applied
from programs import run
from recordings import Made, RecordingBuilder

from dtypetrace import graph
from dtypetrace.rules.wide_weights import advice, candidates


def program(half: str, *, autocast: str = "", scaler: bool = False) -> tuple[RecordingBuilder, Made]:
    b = RecordingBuilder()
    b.line("«import torch»")
    weight = b.made(half, "cast", explicit=True, text=f"net = «net.to(torch.{half})»").as_parameter("weight")
    b.ran("linear", b.made(half), weight, autocast=autocast)
    if scaler:
        b.ran(
            "unscale_", b.made("float32"), aten="_amp_foreach_non_finite_check_and_unscale_.default", phase="optimizer"
        )
    return b, weight


def advised(half: str, **more) -> str:
    b, weight = program(half, **more)
    _, lines = advice(b.recording, graph.origin(b.recording, weight.event, half), half)
    return "; ".join(line.text for line in lines)


def test_without_autocast_the_region_is_a_line_of_its_own():
    said = advised("bfloat16")
    assert "train.py:2: replace `torch.bfloat16` with `torch.float32`" in said
    assert 'torch.autocast("cpu", dtype=torch.bfloat16)' in said and "GradScaler" not in said


def test_float16_needs_a_scaled_loss_too():
    assert "GradScaler" in advised("float16") and "GradScaler" not in advised("float16", scaler=True)


def test_a_forward_that_runs_under_autocast_needs_no_region():
    assert "torch.autocast" not in advised("bfloat16", autocast="cpu:bfloat16")


def test_the_lines_name_the_programs_own_optimizer_loss_and_model():
    b = RecordingBuilder()
    b.line("«import torch»")
    weight = b.made("float16", "cast", explicit=True, text="net = «net.to(dtype)»").as_parameter("weight")
    b.line("«opt = torch.optim.SGD(net.parameters(), 0.1)»")
    b.ran("linear", b.made("float16"), weight, text="error = «net(x)»", module="net")
    b.line("«error.backward()»")
    place = b.line("«opt.step()»")
    origin = graph.origin(b.recording, weight.event, "float16")
    _, said = advice(b.recording, origin, "float16", b.recording.places[place])
    assert tuple(line.text for line in said) == (
        "train.py:2: remove `net = net.to(dtype)`",
        'after the line that makes `opt` (train.py:3): add `scaler = torch.amp.GradScaler("cpu")`',
        'train.py:5: call `net(...)` under `torch.autocast("cpu", dtype=torch.float16)`',
        "train.py:6: replace `error.backward()` with `scaler.scale(error).backward()`",
        "train.py:7: replace `opt.step()` with `scaler.step(opt); scaler.update()`",
    )
    _, beside, _, region = candidates(b.recording, origin, "float16", b.recording.places[place])
    assert beside.done.startswith("before the line that makes `opt`") and beside.edits[0].start == (3, 1)
    assert not beside.region and region.region
    assert region.edits[1].after == 'with torch.autocast("cpu", dtype=torch.float16): error'


# ---------------------------------------------------------------- the lines, followed in programs that ran

STEPS = """
for _ in range(6):
    loss = net(x).float().square().mean()
    loss.backward()
    {step}
    opt.zero_grad()
"""
NET = "import torch\nnet = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))\n"
X = "x = torch.randn(8, 16, dtype=torch.bfloat16)\n"
LORA = """import torch
from diffusers.training_utils import cast_training_params
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(4, 16)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x))
net = Layer()
net.base.requires_grad_(False)
kind = torch.bfloat16
net.to("cpu", dtype=kind)
"""

HALF_WEIGHTS = {
    "groups, and a cast by a setting": NET
    + "def groups(lr):\n    return [{'params': list(net[0].parameters())}, {'params': list(net[2].parameters())}]\n"
    "params = groups(1e-5)\nkind = torch.bfloat16\nnet.to(kind)\nopt = torch.optim.AdamW(params, lr=1e-5)\n"
    "x = torch.randn(8, 16, dtype=kind)\n",
    "a method that makes the optimizer from names": """import torch
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 1)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
    def configure_optimizers(self, weight_decay, learning_rate):
        params = {n: p for n, p in self.named_parameters()}
        decay = [p for p in params.values() if p.dim() >= 2]
        rest = [p for p in params.values() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate)
kind = {"bfloat16": torch.bfloat16}["bfloat16"]
weight_decay = 0.1
net = Net().to(kind)
opt = net.configure_optimizers(weight_decay, 1e-5)
x = torch.randn(8, 16, dtype=kind)
""",
    "named parameters": NET
    + "net.bfloat16()\nopt = torch.optim.AdamW(net.named_parameters(), lr=1e-5)\n" + X,
    "weights that a helper collects, and a literal cast": NET
    + "net = net.to(torch.bfloat16)\ndef collect(m):\n    return [{'params': [p]} for p in m.parameters()]\n"
    "trained = collect(net)\nopt = torch.optim.AdamW(trained, lr=1e-5)\n" + X,
    "an optimizer that was made before the cast": NET
    + "opt = torch.optim.AdamW(net.parameters(), lr=1e-5)\nkind = torch.bfloat16\nother = nn.Linear(2, 2).to(kind)\n"
    "net.to(kind)\n" + X,
    "adapters that a cast of all narrows, by diffusers' function": LORA
    + "opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, net.parameters()), lr=1e-5)\n" + X,
    "adapters that a cast of all narrows": LORA.replace("from diffusers.training_utils import cast_training_params\n", "")
    + "trained = [p for p in net.parameters() if p.requires_grad]\nopt = torch.optim.AdamW(trained, lr=1e-5)\n" + X,
    "adapters, and an optimizer that was made before": LORA.replace(
        "kind =", "opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-5)\nkind ="
    ).replace("from diffusers.training_utils import cast_training_params\n", "") + X,
}  # fmt: skip


@pytest.mark.parametrize("name", HALF_WEIGHTS)
def test_the_lines_can_be_typed(name, tmp_path):
    """The first change, with the region, ends in a program that trains the same weights in float32."""
    if "diffusers" in HALF_WEIGHTS[name]:
        pytest.importorskip("diffusers")
    program = run(tmp_path, HALF_WEIGHTS[name] + STEPS.format(step="opt.step()"), numerics=True)
    assert program.error is None
    finding = next(f for f in program.findings if f.code == "DT304")
    found = candidates(program.with_text, finding.culprit.origin, "bfloat16", finding.site)
    first = next(c for c in found if c.region)
    assert finding.fix.lines[0] == found[0].done and finding.fix.lines[1] in first.done
    again = run(tmp_path, applied(program.text, first.edits, program.file), name="typed.py")
    assert again.error is None, (again.error, again.text)
    trained = [p for p in again.names["net"].parameters() if p.requires_grad]
    frozen = [p for p in again.names["net"].parameters() if not p.requires_grad]
    assert {p.dtype for p in trained} == {torch.float32} and {p.dtype for p in frozen} <= {torch.bfloat16}, again.text


def test_a_library_s_own_function_is_used_where_the_file_imports_it(tmp_path):
    pytest.importorskip("diffusers")
    name = "adapters that a cast of all narrows, by diffusers' function"
    program = run(tmp_path, HALF_WEIGHTS[name] + STEPS.format(step="opt.step()"), numerics=True)
    finding = next(f for f in program.findings if f.code == "DT304")
    assert "cast_training_params(net, dtype=torch.float32)" in finding.fix.lines[0]
