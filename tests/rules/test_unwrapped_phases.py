"""Running sums of angles that float32 no longer holds (DT308), and angles that stay small or are wide enough."""

from __future__ import annotations

import programs
import pytest

LOST = {
    "an oscillator": "phase = torch.cumsum(step, 0)\nwave = torch.sin(phase)",
    "turns": "turns = (step / 6.2832).cumsum(0)\nwave = (turns * 6.2832).cos()",
    "harmonics": "phase = torch.cumsum(step[:, None] * torch.arange(1, 3), dim=0)\n"
    "wave = torch.sin(phase.flatten()).view(-1, 2).sum(1)",
}
KEPT = {
    "in float64": "phase = torch.cumsum(step.double(), 0)\nwave = torch.sin(phase).float()",
    "a short one": "phase = torch.cumsum(step[:9000], 0)\nwave = torch.sin(phase)",
    "steps that are no sum": "wave = torch.sin(step)",
    "wrapped as it goes": "parts = step.view(-1, 1000).cumsum(1)\nwave = torch.sin(parts)",
}
STEPS = "step = 2.5 + 0.1 * torch.rand(800_000)\n"


def codes(tmp_path, text):
    program = programs.run(tmp_path, STEPS + text, numerics=True)
    return [(f.code, program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("text", LOST.values(), ids=LOST)
def test_a_phase_that_is_never_wrapped(text, tmp_path):
    ((code, line),) = codes(tmp_path, text)
    assert code == "DT308" and "cumsum" in line


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_angles_that_float32_holds(text, tmp_path):
    assert codes(tmp_path, text) == []
