"""Forty programs whose truth was written down before any rule was looked at, judged by measurement alone."""

from __future__ import annotations

import importlib.util

import programs
import pytest
import unseen

WRONG = {
    "attention with loud queries": "its attention is off by 2%, as much as ordinary rounding: the program was expected to be worse than it is",
}
SLOW = {"transformers", "diffusers"}


def judged(program, text: str) -> tuple[str, bool]:
    """The kind of the first serious finding, and whether it blames a line marked BORN."""
    serious = [f for f in program.findings if f.severity != "note"]
    if not serious:
        return "", True
    born = [n for n, line in enumerate(text.splitlines(), 1) if "# BORN" in line]
    culprit = serious[0].culprit
    lines = [frame.line for frame in culprit.origin.place.stack if frame.file == program.file] if culprit else []
    return serious[0].kind, lines[:1] != [] and lines[0] in born


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.needs else []) for c in unseen.PROGRAMS]
)
def test_a_program_that_no_rule_was_made_for(case, tmp_path):
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"needs {case.needs}")
    text = case.text.lstrip("\n")
    program = programs.run(tmp_path, text.replace("  # BORN", ""), numerics=True, reference=True)
    assert program.error is None, program.error
    assert not program.trace._watch.recorder.broken, program.recording.not_seen
    refused = [n for n in program.recording.not_seen if "reference" in n and "no plain tensor" not in n]
    assert not refused, refused  # a fused encoder packs its rows into a nested tensor, which has no reference
    kind, born = judged(program, text)
    if case.name in WRONG:
        assert kind not in case.expect, f"right by now: {case.name}"
        return
    assert (kind in case.expect) if case.expect else kind == "", program.trace
    assert born or not case.expect, program.trace


THIN = """
torch.manual_seed(0)
encoder, head = nn.Linear(64, 32), nn.Linear(32, 512)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3)
weights = torch.logspace(-3, 0, 512)
for _ in range(6):
    x = torch.randn(64, 64)
    with torch.autocast("cpu", dtype=torch.float16):
        made = head(encoder(x))
    ((made.float() - 1) * weights).square().mean().mul({scale}).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("scale", "codes"), [(1e-3, {"DT302"}), (1e4, set())])
def test_a_gradient_of_which_only_the_large_numbers_arrive(scale, codes, tmp_path):
    """The weights are in float32: the step is lost in the gradient, and not in their dtype."""
    program = programs.run(tmp_path, THIN.format(scale=scale), numerics=True, reference=True)
    assert {f.code for f in program.findings if f.severity != "note"} == codes


COUNTS = """
torch.manual_seed(0)
nodes = torch.randint(0, 8, (8000,))
degree = torch.zeros(8, dtype=torch.{dtype})  # BORN
degree.index_add_(0, nodes, torch.ones(8000, dtype=torch.{dtype}))
print((torch.rand(8) / degree.clamp_min(1)).tolist())
"""


@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", ("precision-loss", True)), ("float32", ("", True))])
def test_a_sum_by_index_that_stops_is_no_table(dtype, expected, tmp_path):
    text = COUNTS.format(dtype=dtype).lstrip()
    program = programs.run(tmp_path, text.replace("  # BORN", ""), numerics=True, reference=True)
    assert judged(program, text) == expected


NARROW_STATE = """
class Lean(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                held = self.state[p]
                if not held:
                    held["mean"] = torch.zeros_like(p, dtype=torch.float16)
                held["mean"].mul_(0.9).add_(p.grad.half(), alpha=0.1)
                p.add_(held["mean"].float(), alpha=-group["lr"])

torch.manual_seed(0)
net = nn.Linear(8, 4)
optimizer = Lean(net.parameters(), 1e6)
for _ in range(4):
    (net(torch.randn(16, 8)).square().mean() * 1e-8).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_advice_for_a_narrow_state_leaves_wide_weights_alone(tmp_path):
    (finding,) = programs.run(tmp_path, NARROW_STATE, numerics=True, reference=True).findings
    assert finding.code == "DT302" and finding.fix.why.startswith("keep the optimizer's state in float32")
