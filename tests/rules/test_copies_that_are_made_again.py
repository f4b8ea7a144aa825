"""Wide copies of narrow weights that are made again from them before what they have gathered shows there."""

from __future__ import annotations

import programs
import pytest

RESUMED = """
torch.manual_seed(0)
target = 0.75 + 0.06 * torch.sign(torch.randn(8, 8))

def copies(model):
    return [p.detach().to(torch.float32).clone() for p in model.parameters()]  # born

state = None
for job in range(8):
    model = nn.Linear(8, 8, bias=False).to(torch.bfloat16)
    nn.init.constant_(model.weight, 0.75)
    masters = copies(model)
    if state is not None:
        model.load_state_dict(state)
        masters = copies(model)
    for _ in range(STEPS):
        x = torch.randn(16, 8)
        (model(x.to(torch.bfloat16)).float() - x @ target.t()).square().mean().backward()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                master.sub_(RATE * p.grad.float().sign())
                p.copy_(master)
                p.grad = None
    state = {k: v.clone() for k, v in model.state_dict().items()}
"""
EPOCHS = """
torch.manual_seed(0)
table = nn.Parameter(torch.full((16, 4), 0.75, dtype=torch.bfloat16), requires_grad=False)
for epoch in range(8):
    wide = table.float()  # born
    for _ in range(STEPS):
        wide = wide - RATE * torch.sign(torch.randn(16, 4) - 0.3)
        table.copy_(wide)
"""
EXTRACTED = """
torch.manual_seed(0)
live = {"a": nn.Parameter(torch.full((8,), 1.5).half(), requires_grad=False)}
for epoch in range(8):
    kept = {name: value.to(torch.float32) for name, value in live.items()}  # born
    for _ in range(STEPS):
        for name, value in kept.items():
            value += RATE * torch.rand(8)
            live[name].copy_(value)
"""
WAYS = {"resumed": (RESUMED, 10, 1e-4, 5e-3), "epochs": (EPOCHS, 10, 1e-5, 2e-2), "kept": (EXTRACTED, 10, 1e-5, 5e-3)}


def found(tmp_path, text, steps, rate):
    program = programs.run(tmp_path, text.replace("STEPS", str(steps)).replace("RATE", str(rate)), numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    warnings = [f for f in program.findings if f.severity != "note"]
    return [(f.code, program.at(f.culprit.origin.place).endswith("# born")) for f in warnings], program


@pytest.mark.parametrize("how", WAYS)
def test_what_the_copy_had_gathered_is_gone(how, tmp_path):
    text, steps, rate, _ = WAYS[how]
    said, program = found(tmp_path, text, steps, rate)
    assert said == [("DT307", True)], program.trace


@pytest.mark.parametrize("how", WAYS)
def test_what_has_shown_in_the_weights_before_is_kept(how, tmp_path):
    text, steps, _, rate = WAYS[how]
    said, program = found(tmp_path, text, steps, rate)
    assert "DT307" not in [code for code, _ in said], program.trace


def test_a_copy_that_is_made_once_gathers_them(tmp_path):
    once = EPOCHS.replace(
        "for epoch in range(8):\n    wide = table.float()  # born", "wide = table.float()\nfor epoch in range(8):"
    )
    said, program = found(tmp_path, once, 10, 1e-5)
    assert said == [], program.trace
