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
    "a decay that is rounded by itself": "state = (0.999 * state + 0.01 * x).bfloat16()",
    "a level in 16 bits": "state = (state.float() - 0.001 * (state.float() - 50)).short()",
}
KEPT = {
    "steps that arrive": "state = (state.float() + 0.5).bfloat16()",
    "a decay that arrives": "state = (0.99 * state + 0.01 * x).bfloat16()",
    "a product that is not stored": "state = (state.float() + 0.5).bfloat16(); shown = state * 1.001",
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


OPTIMIZER = """
class Own(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            kept = self.state[p].setdefault("kept", torch.zeros_like(p, dtype=torch.bfloat16))
            self.state[p]["kept"] = kept = ({decay}).to(kept.dtype)
            p.sub_(0.01 * p.grad / (kept.float().sqrt() + 1e-8))

model = torch.nn.Linear(4, 4){of}
optimizer = Own(model.parameters(), {{}})
"""
STEPS = """for n in range(12):
    optimizer.zero_grad()
    model(torch.ones(2, 4, dtype=model.weight.dtype)).square().sum().backward()
    optimizer.step()"""
NARROW = "0.999 * kept + 0.001 * p.grad.float().square()"


@pytest.mark.parametrize(
    ("decay", "of", "found"),
    [
        (NARROW, "", ["DT307"]),
        ("kept * 0.9985 + p.grad.float().abs()", "", ["DT307"]),
        ("0.9 * kept + 0.1 * p.grad.square()", "", []),
        ("0.999 * kept.float() + 0.001 * p.grad.square()", "", []),
        (NARROW, ".bfloat16()", []),
    ],
)
def test_what_an_optimizer_keeps_and_never_decays(decay, of, found, tmp_path):
    """While what is added is large, only the decay is lost. Where the weights are as narrow, their steps show more."""
    program = programs.run(tmp_path, STEPS, before=OPTIMIZER.format(decay=decay, of=of), numerics=True)
    assert program.error is None and not program.recording.not_seen
    warned = [f for f in program.findings if f.code == "DT307"]
    assert [f.code for f in warned] == found, program.trace
    assert all(f.culprit.origin.kind == "factory" for f in warned)
