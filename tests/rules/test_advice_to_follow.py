"""Advice that a reader typed and that made things worse: what was followed, and what is said now."""

from __future__ import annotations

import programs
import pytest
import torch
from followed import follow


def shown(found):
    return [(edit.before, edit.after) for edit in found.fix.edits]


GATE = """
import torch
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
    def forward(self, h):
        return {taken}
base = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]).half().requires_grad_(False)
gate, head = Gate(), nn.Linear(4, 2).half().requires_grad_(False)
optimizer = torch.optim.SGD([*gate.parameters()], lr=0.1)
for _ in range(2):
    hidden = gate(base(torch.randn(3, 4).half()))
    head(hidden).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("taken", ["h * self.scale", "h + self.scale", "torch.addcmul(h, h, self.scale)"])
def test_a_trained_weight_is_not_narrowed_where_it_meets_others_at_once(taken, tmp_path):
    (refused,) = programs.run(tmp_path, GATE.format(taken=taken)).findings
    assert [after.endswith(".to(torch.float16)") for _, after in shown(refused)] == [True]
    assert shown(refused)[0][0] == taken, shown(refused)


ROPE = """
import torch
def tables(t):
    freq = 1.0 / 10000 ** (torch.arange(0, 4) / 4)
    ang = torch.outer({positions}, freq)
    return ang.cos(), ang.sin()
net = nn.Linear(4, 4).to(torch.bfloat16)
cos, sin = tables(10)
x = net(torch.randn(10, 4, dtype=torch.bfloat16))
y = x * cos + x * sin
(y @ y.T).sum().backward()
"""


@pytest.mark.parametrize("positions", ["torch.arange(t).float()", "torch.arange(float(t))", "torch.linspace(0, 9, t)"])
def test_positions_are_not_narrowed_above_their_cos_and_sin(positions, tmp_path):
    found = programs.run(tmp_path, ROPE.format(positions=positions)).findings
    edits = [edit for f in found if f.code == "DT201" for edit in shown(f)]
    assert edits and {before for before, _ in edits} <= {"ang.cos()", "ang.sin()"}, edits


@pytest.mark.parametrize("made", ["torch.rand(8)", "torch.randn(8).abs()", "torch.rand(4, 2)[:, 0]"])
def test_fractions_are_not_to_be_drawn_as_integers(made, tmp_path):
    text = f"import torch\nemb = nn.Embedding(9, 4)\nt = {made}\nidx = (t * 9).floor().clamp(0, 8)\nemb(idx)"
    (refused,) = programs.run(tmp_path, text).findings
    assert shown(refused) == [("idx", "idx.to(torch.int64)")]
    assert not [other for other in refused.fix.alternatives if "int64" in other and "idx" not in other]


STATE = """
net = nn.Linear(4, 2).to(torch.bfloat16)
class Momentum(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros(p.shape)
                state["m"].lerp_(p.grad, 0.1)
                p.add_(state["m"].to(p.dtype), alpha=-0.1)
optimizer = Momentum(net.parameters())
net(torch.randn(3, 4, dtype=torch.bfloat16)).sum().backward()
optimizer.step()
"""


def test_an_optimizer_s_state_may_stay_wide(tmp_path):
    (refused,) = programs.run(tmp_path, STATE).findings
    assert refused.code == "DT115"
    assert any(other.startswith("keep") and "float32" in other for other in refused.fix.alternatives), refused.fix


LIBRARY = """
import torch
from torch import nn

class Average:
    def __init__(self, model):
        self.kept = [p.detach().clone() for p in model.parameters()]
    def to(self, dtype):
        self.kept = [p.to(dtype=dtype) for p in self.kept]
    def step(self, model):
        for kept, p in zip(self.kept, model.parameters()):
            kept.sub_(1e-3 * (kept - p.detach()))
"""


@pytest.mark.parametrize("named", ["torch.bfloat16", "bf16"])
def test_a_dtype_that_the_program_gave_a_library_is_changed_where_it_gave_it(named, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "averaging.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    text = f"""
import torch
import averaging
net = nn.Linear(32, 16)
average = averaging.Average(net)
bf16 = torch.bfloat16
average.to(dtype={named})
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(12):
    net(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.step(net)
"""
    found = programs.run(tmp_path, text, numerics=True).findings
    lost = next(f for f in found if f.code == "DT307")
    assert shown(lost) == [("torch.bfloat16", "torch.float32")], lost.fix


def test_a_gradient_that_was_never_computed_was_not_tried(tmp_path):
    text = """
    net = nn.Linear(8, 8).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(3):
        loss = ((net(torch.randn(4, 8).half()) * 1000) ** 2).mean()
        {went}
    """
    said = {}
    for went in ("if torch.isfinite(loss): loss.backward()", "loss.backward()"):
        found = programs.run(tmp_path, text.format(went=went), numerics=True).findings
        overflow = next(f for f in found if f.code == "DT301")
        said[went] = [note for note in overflow.notes if note.startswith("no backward pass was seen")]
    assert [len(notes) for notes in said.values()] == [1, 0], said


BASE = """
base = nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 8)).to(torch.bfloat16).requires_grad_(False)
ids = torch.arange(6).view(2, 3)
"""
NO_MODULE = {
    "an adapter in a plain class": """
class Lora:
    def __init__(self):
        self.a = torch.randn(8, 2).requires_grad_()
        self.b = torch.zeros(2, 8, requires_grad=True)
    def __call__(self, x):
        return x @ self.a @ self.b
lora = Lora()
given = [lora.a, lora.b]
opt = torch.optim.SGD(given, lr=0.1)
h = base(ids)
(h + lora(h)).float().sum().backward()
""",
    "a projection in a list": """
given = [torch.randn(4, 8, requires_grad=True)]
opt = torch.optim.AdamW([{"params": given}], lr=0.1)
F.linear(base(ids), given[0]).float().sum().backward()
""",
    "a view of one": """
given = [torch.randn(8, 4).mul_(0.1).requires_grad_()]
opt = torch.optim.SGD(given, lr=0.1)
torch.matmul(base(ids), given[0][:, :2]).float().sum().backward()
""",
}


@pytest.mark.parametrize("how", NO_MODULE)
def test_what_an_optimizer_was_given_without_a_module_is_not_narrowed(how, tmp_path):
    found = follow(tmp_path, BASE + NO_MODULE[how])
    assert found.shown and found.clean, found.program.findings
    assert {p.dtype for p in found.program.names["given"]} == {torch.float32}


def test_what_only_asks_for_gradients_is_cast_where_it_is_made(tmp_path):
    found = follow(tmp_path, BASE + "turn = torch.randn(8, 4, requires_grad=True)\ny = base(ids) @ turn", rounds=1)
    assert found.clean and "requires_grad=True).bfloat16()" in found.text


FILLED = """
net = nn.Linear(4, 1)
real, fake = 1, 0
def targets(n):
    {made}
score = net(torch.randn(3, 4))
F.binary_cross_entropy_with_logits(score, targets(3)).backward()
"""


@pytest.mark.parametrize(
    ("made", "written"),
    [
        ("return torch.full((n, 1), real)", "torch.full((n, 1), real, dtype=torch.float32)"),
        ("t = torch.full((n, 1), fake)\n    return t", "torch.full((n, 1), fake, dtype=torch.float32)"),
        (
            "return torch.ones(n, 1).new_full((n, 1), 1) if n < 0 else torch.full([n, 1], 1)",
            "torch.full([n, 1], 1, dtype=torch.float32)",
        ),
    ],
)
def test_a_target_that_is_of_integers_only_by_its_number_is_made_of_floating_ones(made, written, tmp_path):
    found = follow(tmp_path, "import torch\n" + FILLED.format(made=made), rounds=1)
    assert found.clean and written in found.text, found.text


def test_class_numbers_are_cast_in_the_call(tmp_path):
    text = "import torch\n" + FILLED.format(made="return torch.tensor([[1], [0], [1]])")
    found = follow(tmp_path, text, rounds=1)
    assert found.clean and "targets(3).to(torch.float32)" in found.text, found.text
