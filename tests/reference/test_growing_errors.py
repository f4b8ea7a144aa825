"""Coefficients in 16 bits that hundreds of calls multiply by, and numbers that the program gives."""

from __future__ import annotations

import programs
import pytest

DAMAGED = {
    "a discount": "gamma = torch.tensor(0.997, dtype=torch.bfloat16)  # born\nvalue = torch.zeros(8)\nfor _ in range(700):\n"
    "    value = 1 + gamma.float() * value\nfirst = value.mean().item()",
    "a leaky state": "leak = torch.exp(-torch.full((8,), 1.0).bfloat16() / 1000)  # born\nstate, keep = torch.zeros(8), leak.float()\n"
    "for _ in range(900):\n    state = keep * state + 0.001\nlast = state.mean().item()",
    "an interest": "rate = torch.full((4,), 1.0007).bfloat16()  # born\nworth = torch.ones(4)\nfor _ in range(600):\n"
    "    worth = worth * rate\nlast = worth.mean().item()",
    "products whose error is largest in between": "keep = (1 - torch.linspace(0.03, 0.1, 900) ** 2).bfloat16()  # born\n"
    "left, all_left = torch.ones(()), []\nfor k in keep.float():\n    left = left * k\n    all_left.append(left)\n"
    "gone = (1 - torch.stack(all_left)[190]).item()",
    "a count that half of the terms leave out": "rate = torch.linspace(1.0004, 1.002, 500).bfloat16()  # born\n"
    "grown, levels = torch.ones(()), []\nfor r in rate.float():\n    grown = grown * r\n    levels.append(grown)\n"
    "gain = torch.log(torch.stack(levels)[200]).item()",
    "a teacher's share": "decay = torch.tensor(0.999, dtype=torch.bfloat16)  # born\nkept = torch.rand(8)\n"
    "for _ in range(3):\n    kept = decay.float() * kept + (1 - decay.float()) * torch.rand(8)",
    "a correction": "beta = torch.tensor([0.9, 0.9995]).bfloat16()  # born\nlater = beta[1].float()\nshare = 1 / (1 - later)",
    "odds": "sure = torch.tensor(0.9995, dtype=torch.float16).bfloat16()  # born\nodds = torch.log(1 - sure.float() + 1e-9)",
}  # fmt: skip
HEALTHY = {
    "a short memory": "gamma = torch.tensor(0.9, dtype=torch.bfloat16)\nvalue = torch.zeros(8)\nfor _ in range(400):\n"
    "    value = 1 + gamma.float() * value\nfirst = value.mean().item()",
    "products of what bfloat16 holds": "keep = (1 - torch.linspace(0.1, 0.3, 600) ** 2).bfloat16()\nleft, all_left = torch.ones(()), []\n"
    "for k in keep.float():\n    left = left * k\n    all_left.append(left)\ngone = (1 - torch.stack(all_left)[20]).item()",
    "products of which the last is taken": "keep = (1 - torch.linspace(0.03, 0.1, 600) ** 2).bfloat16()\nleft = torch.ones(())\n"
    "for k in keep.float():\n    left = left * k\nseen = torch.sqrt(1 - left).item()",
    "a recurrent state": "w = (torch.randn(8, 8) / 4).bfloat16()\nh = torch.zeros(8).bfloat16()\nfor _ in range(400):\n"
    "    h = torch.tanh(w @ h + torch.rand(8).bfloat16())\nlast = h.float().mean().item()",
    "constants": "half = torch.tensor(0.3, dtype=torch.bfloat16)\nrest = 1 - half.float()\nshare = torch.tensor([0.1, 0.2]).half().sum().item()",
    "inference": "with torch.inference_mode():\n    half = torch.tensor(0.3, dtype=torch.bfloat16)\n    rest = (torch.rand(4).bfloat16() * half).sum().item()",
    "a walk": "place = torch.zeros(8)\nstep = (torch.rand(8) - 0.5).bfloat16()\nfor _ in range(400):\n"
    "    place = place + step.float() * (torch.rand(8) - 0.5)\nlast = place.norm().item()",
}  # fmt: skip


def run(text, tmp_path):
    program = programs.run(tmp_path, "torch.manual_seed(0)\n" + text, numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    return program, [f for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("how", DAMAGED)
def test_the_line_that_rounds_the_coefficient_is_named(how, tmp_path):
    program, found = run(DAMAGED[how], tmp_path)
    assert [program.at(f.culprit.origin.place).endswith("# born") for f in found] == [True], program.trace


@pytest.mark.parametrize("how", HEALTHY)
def test_what_forgets_or_wanders_is_not(how, tmp_path):
    program, found = run(HEALTHY[how], tmp_path)
    assert found == [], program.trace


@pytest.mark.parametrize(("text", "grows"), [(DAMAGED["a discount"], True), (HEALTHY["a short memory"], False)])
def test_only_what_grows_is_followed_beyond_the_usual_calls(text, grows, tmp_path):
    program, _ = run(text, tmp_path)
    assert (max(p.calls for p in program.recording.spot_checks) > 100) is grows
