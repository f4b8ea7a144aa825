"""States that are computed in float32 and stored narrow, round after round: reported where they stand still."""

import programs
import pytest

BEFORE = "torch.manual_seed(0); x = torch.rand(8, 8) * 20 + 100; state = torch.full((8, 8), 8.0)"
ROUNDS = "for n in range(100):\n    "
LOST = {
    "a sum in bfloat16": "state = (state.float() + 0.01).bfloat16()",
    "widened at once": "state = (state + 0.01).bfloat16().float()",
    "an average in float16": "state = torch.lerp(state.float(), x, 0.00002).half()",
    "bytes whose fraction is cut off": "state = (0.996 * state.float() + 0.004 * x).to(torch.uint8)",
    "bytes that are rounded": "state = (0.995 * state.float() + 0.005 * x).round().clamp(0, 255).to(torch.uint8)",
    "a level in 16 bits": "state = (state.float() - 0.001 * (state.float() - 50)).short()",
}
KEPT = {
    "steps that arrive": "state = (state.float() + 0.5).bfloat16()",
    "an average that has arrived": "state = (0.9 * state.float() + 0.1 * (8 + torch.randn(8, 8) * 0.1)).bfloat16()",
    "stochastic rounding": "state = (state.float() + 0.01 + (torch.rand(8, 8) - 0.5) / 16).bfloat16()",
    "bytes that follow": "state = (0.5 * state.float() + 0.5 * (x + n)).round().to(torch.uint8)",
    "weights that are cast anew": "x = x + 0.0001\n    state = (x * 1.0).bfloat16()",
    "codes with a scale that fits": "state = ((state.float() * 0.02 + 0.02) / 0.02).round().clamp(-128, 127).to(torch.int8)",
    "few rounds": "state = (state.float() + 0.01).bfloat16() if n < 20 else state",
    "a number that is only limited": "state = (state.float() * 1.0).clamp(0, 10).bfloat16()",
}


@pytest.mark.parametrize("how", LOST.values(), ids=LOST)
def test_states_that_stand_still(how, tmp_path):
    program = programs.run(tmp_path, ROUNDS + how, before=BEFORE, numerics=True)
    assert program.error is None and not program.recording.not_seen
    found = [f for f in program.findings if f.severity == "warning"]
    assert [f.code for f in found] == ["DT307"], program.trace
    assert how in program.at(found[0].culprit.origin.place)


@pytest.mark.parametrize("how", KEPT.values(), ids=KEPT)
def test_states_that_move(how, tmp_path):
    program = programs.run(tmp_path, ROUNDS + how, before=BEFORE, numerics=True)
    assert program.error is None and not program.recording.not_seen
    assert [f.code for f in program.findings if f.severity != "note"] == [], program.trace
