"""States that are carried on for thousands of steps, of which the first few hundred are looked at: what one factor in
16 bits makes of them, and states whose roundings do not compound."""

from __future__ import annotations

import programs
import pytest

_LOST = {
    "a decay close to one": """
        decay = torch.exp(-torch.full((32,), 0.0015).bfloat16())
        for x in xs:
            state = decay.float() * state + 0.01 * x
        """,
    "the decays of channels": """
        rates = torch.linspace(-9, -6, 32).bfloat16()
        decay = torch.exp(-torch.exp(rates)).float()
        for x in xs:
            state = decay * state + 0.01 * x
        """,
    "growth": """
        growth = torch.full((32,), 1.0015).bfloat16().float()
        state = state + 1
        for x in xs:
            state = growth * state
            state = state / state.mean().clamp(min=1e3) if state.mean() > 1e3 else state
        """,
}
_HEALTHY = {
    "a decay that bfloat16 holds": """
        decay = torch.full((32,), 0.9).bfloat16()
        for x in xs:
            state = decay.float() * state + 0.1 * x
        """,
    "the same decays in float32": """
        rates = torch.linspace(-9, -6, 32).bfloat16().float()
        decay = torch.exp(-torch.exp(rates))
        for x in xs:
            state = decay * state + 0.01 * x.bfloat16().float()
        """,
    "a recurrent cell": """
        cell = nn.GRUCell(32, 32).bfloat16()
        state = state.bfloat16()[None]
        with torch.no_grad():
            for x in xs[:800]:
                state = cell(x.bfloat16()[None], state)
        """,
    "weights that are trained by hand": """
        weight = torch.zeros(32, 1, requires_grad=True)
        for x in xs[:800]:
            batch = torch.stack([x, x.flip(0), x.roll(5)])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = batch @ weight
            loss = (out.float() - batch.mean(1, keepdim=True)).square().mean()
            (grad,) = torch.autograd.grad(loss, weight)
            with torch.no_grad():
                weight -= 0.01 * grad
        """,
}


def found(tmp_path, text):
    before = "torch.manual_seed(0); xs, state = torch.rand(1600, 32), torch.zeros(32)"
    program = programs.run(tmp_path, text, before=before, numerics=True)
    assert program.error is None
    return [f.code for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("text", _LOST.values(), ids=_LOST)
def test_a_factor_that_is_off_by_one_rounding_compounds(text, tmp_path):
    assert found(tmp_path, text)[:1] == ["DT308"]


@pytest.mark.parametrize("text", _HEALTHY.values(), ids=_HEALTHY)
def test_states_whose_roundings_do_not_compound(text, tmp_path):
    assert found(tmp_path, text) == []


_SUMS = {
    "losses of an epoch": "total = torch.zeros((), dtype=torch.bfloat16)\nfor x in xs:\n    total += x.mean() + 2",
    "gradients of micro-batches": "grad = torch.zeros(32, dtype=torch.bfloat16)\nfor x in xs[:900]:\n    grad += x + 0.5",
    "a histogram with weights": "bins = torch.zeros(32).half()\nfor x in xs:\n    bins.add_(x + 1)",
    "seconds of a clock": "clock = torch.zeros(1, dtype=torch.float16)\nfor x in xs:\n    clock += x[:1] * 0 + 0.3",
}


@pytest.mark.parametrize("text", _SUMS.values(), ids=_SUMS)
def test_a_sum_of_wider_numbers_is_told_by_what_all_calls_lose(text, tmp_path):
    assert found(tmp_path, text) == ["DT307"]


def test_a_sum_to_which_no_call_adds_loses_its_numbers_where_they_are_stored(tmp_path):
    text = "total = torch.full((), 4096.0, dtype=torch.float16)\nfor x in xs[:100]:\n    total += x.mean() + 1"
    assert found(tmp_path, text) == ["DT203"]


_ITERATIONS = {
    "an orthogonal factor": (
        "x = F.normalize(torch.randn(16, 48), p=2, dim=(-2, -1)).bfloat16()",
        "g = x @ x.T; x = 3.4445 * x + (-4.775 * g + 2.0315 * g @ g) @ x",
    ),
    "an inverse": (
        "a = (torch.eye(12) + 0.2 * torch.randn(12, 12)).bfloat16(); x = 0.5 * a.T",
        "x = 2 * x - x @ a @ x",
    ),
    "a sign": ("x = (torch.randn(24, 24) / 12).bfloat16()", "x = 1.5 * x - 0.5 * x @ x.T @ x"),
}


@pytest.mark.parametrize(("made", "step"), _ITERATIONS.values(), ids=_ITERATIONS)
def test_an_iteration_that_corrects_itself_does_not_drift(made, step, tmp_path):
    text = f"{made}\nfor _ in range(5):\n    {step}\nprint(x.float().norm().item())"
    assert found(tmp_path, text) == []
