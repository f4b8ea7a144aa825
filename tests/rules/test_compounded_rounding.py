"""Roundings that add up in a cumulative product, running sums of which differences are taken, and ranks by stored numbers."""

from __future__ import annotations

import programs
import pytest

FACTORS = "risk = torch.rand(64, 360) * 1e-3\n"
DAMAGED = {
    "survival": FACTORS + "stay = (1 - risk).bfloat16()  # born\ncurve = stay.float().cumprod(-1)\nlast = curve[:, -1].mean().item()",
    "discounts": "rate = torch.full((300,), 1.0015)\n"
    "factor = rate.bfloat16()  # born\nworth = (factor.double().cumprod(0) * 5)[-1].item()",
    "transmittance": FACTORS + "light = torch.exp(-risk).half().bfloat16()  # born\nshown = light.float().cumprod(1)[:, -1].sum().item()",
    "a summed-area table": "image = given(0.5 + 0.02 * torch.randn(128, 128))\n"
    "table = image.cumsum(0).cumsum(1)  # born\nt = table[9:, 9:] - table[:-9, 9:] - table[9:, :-9] + table[:-9, :-9]\n"
    "light = image[4:-5, 4:-5].float() > t.float() / 81 - 0.02",
    "prefix sums": "x = given(torch.rand(8, 6000) + 0.5)\n"
    "total = x.cumsum(1)  # born\nwindow = total[:, 1:] - total[:, :-1]\nleast = window.float().amin().item()",
    "a moving average": "x = given(torch.rand(9000) + 0.5)\ntotal = torch.cumsum(x, 0)  # born\nmean = (total[3:] - total[:-3]) / 3\nmean.float().std().item()",
    "sure scores": "score = torch.sigmoid(8 + torch.randn(3000)).bfloat16()  # born\nkept = score.float()\n"
    "gap = kept[:1500, None] - kept[None, 1500:]\nshare = (gap > 0).float().mean().item()",
    "late times": "time = (1000 + torch.rand(3000)).half()  # born\nkept = time.float()\n"
    "first = (kept[:, None] - kept[None] < 0).sum(1)",
    "equal distances": "far = (torch.rand(3000) * 0.1 + 500).bfloat16()  # born\nones = torch.rand(3000) > 0.5\n"
    "gap = far[ones][:, None] - far[~ones][None]\nties = (gap == 0).float().mean().item()",
    "stored ranks": "rank = torch.full((6000,), 1e-4).half()  # born\ndraw = torch.rand(6000) ** 4 * 1e-5\nfor _ in range(3):\n"
    "    rank = (0.1 * rank.float() + draw).to(rank.dtype)\n"
    "order = draw.argsort()\ngap = rank[order][1:] - rank[order][:-1]\nties = (gap == 0).float().mean().item()",
    "a rate that a factor should make smaller": "factor = torch.tensor(0.999, dtype=torch.bfloat16)  # born\n"
    "rate, w = torch.tensor(0.1).bfloat16(), torch.ones(8)\nfor _ in range(400):\n    rate = rate * factor\n    w -= rate * 1e-3 * w",
}  # fmt: skip
HEALTHY = {
    "a state of a fast filter": "x, state = torch.rand(4, 24) + 0.5, torch.zeros(4, 24, dtype=torch.bfloat16)\n"
    "keep = torch.full((24,), 0.9)\nfor _ in range(600):\n    new = keep * state.float() + (1 - keep) * x\n"
    "    shown, state = (new * 2).half(), new.to(state.dtype)\nprint(shown.sum().item())",
    "a rate in float32 that is cast where it is used": "factor, rate, w = torch.tensor(0.999), torch.tensor(0.1), torch.ones(8)\n"
    "for _ in range(300):\n    rate = rate * factor\n    w -= rate.bfloat16() * 1e-3 * w",
    "a rate that is halved": "rate, w = torch.tensor(0.1).bfloat16(), torch.ones(8)\n"
    "for _ in range(60):\n    rate = rate * 0.5\n    w -= rate * 1e-3 * w",
    "survival in float32": FACTORS + "curve = (1 - risk).cumprod(-1)\nlast = curve[:, -1].mean().item()",
    "a short product": FACTORS + "curve = (1 - risk[:, :4]).bfloat16().float().cumprod(-1)\nlast = curve[:, -1].mean().item()",
    "factors that are no power of one rounding": "factor = (torch.rand(64, 300) + 0.5).bfloat16()\n"
    "worth = factor.float().log().cumsum(1)[:, -1].mean().item()",
    "a total": "x = torch.rand(64, 900).half()\nshare = (x.cumsum(1) / x.sum(1, keepdim=True)).float().mean().item()",
    "a table in float32": "image = torch.rand(128, 128).half()\nt = image.float().cumsum(0)\nmean = ((t[9:] - t[:-9]) / 9).mean().item()",
    "scores of a spread": "score = torch.sigmoid(torch.randn(3000)).bfloat16().float()\n"
    "share = (score[:1500, None] - score[None, 1500:] > 0).float().mean().item()",
    "a threshold": "score = torch.sigmoid(8 + torch.randn(3000)).bfloat16()\nshare = (score.float() - 0.5 > 0).float().mean().item()",
    "neighbours within a radius": "place = (torch.rand(900) * 4).half().float()\nnear = (place[:, None] - place[None]).abs() < 0.5",
}  # fmt: skip


def warnings(text, tmp_path):
    program = programs.run(tmp_path, "torch.manual_seed(0)\ngiven = lambda x: x.half()\n" + text, numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    return program, [f for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("how", DAMAGED)
def test_the_line_that_rounds_is_named(how, tmp_path):
    program, found = warnings(DAMAGED[how], tmp_path)
    assert [program.at(f.culprit.origin.place).endswith("# born") for f in found] == [True], program.trace


@pytest.mark.parametrize("how", HEALTHY)
def test_what_stays_within_ordinary_rounding_is_not(how, tmp_path):
    program, found = warnings(HEALTHY[how], tmp_path)
    assert found == [], program.trace


STATE = "state = torch.zeros(16, dtype=torch.{dtype})\nfor token in 1 + 0.1 * torch.randn({steps}, 16):\n    {step}\n"


@pytest.mark.parametrize(
    "dtype, step",
    [
        ("bfloat16", "state.copy_(0.998 * state.float() + 0.002 * token)"),
        ("float16", "state.copy_(state.float().clamp(min=4.0) + 1e-3 * token)"),
        ("bfloat16", "state.copy_(torch.lerp(state.double(), token.double(), 0.001))"),
        ("bfloat16", "state.copy_((state.float().square() * 0.999 + 0.001 * token.square()).sqrt())"),
    ],
)
def test_a_state_that_is_carried_on_and_rounded_each_time(tmp_path, dtype, step):
    program = programs.run(tmp_path, STATE.format(dtype=dtype, steps=1000, step=step), numerics=True)
    assert program.error is None
    (found,) = [f for f in program.findings if f.severity != "note"]
    assert (found.code, found.culprit.origin.line) == ("DT307", 1)


@pytest.mark.parametrize(
    "step",
    [
        "state.copy_(torch.tanh(state.float() + token))",
        "state.copy_(token)",
        "state.copy_(0.5 * state.float() + 0.5 * token)",
        "wide = 0.998 * (wide if 'wide' in globals() else state.float()) + 0.002 * token; state.copy_(wide)",
    ],
)
def test_states_that_are_rounded_and_lose_nothing(tmp_path, step):
    program = programs.run(tmp_path, STATE.format(dtype="bfloat16", steps=200, step=step), numerics=True)
    assert program.error is None and not [f for f in program.findings if f.severity != "note"], program.findings
