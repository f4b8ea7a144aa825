"""Gradients that are limited while they carry the loss scale (DT504), and loops that do it right."""

import programs
import pytest

LIMITS = {
    "their norm": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "their norm, one by one": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)",
    "each number": "torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)",
    "by hand": "size = model.weight.grad.norm(); model.weight.grad.mul_(1 / (size + 1e-6))",
}


def codes(tmp_path, between: str) -> list[str]:
    """The codes of a loop with a loss scaler that does something between backward and step."""
    text = f"""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(4, 8)).float().square().mean()
        scaler.scale(loss).backward()
        {between}
        scaler.step(optimizer)
        scaler.update()
    """
    return [f.code for f in programs.run(tmp_path, text).trace.findings]


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_gradients_limited_before_the_scale_is_gone(tmp_path, limit):
    assert "DT504" in codes(tmp_path, limit)


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_gradients_limited_after_unscale(tmp_path, limit):
    assert "DT504" not in codes(tmp_path, f"scaler.unscale_(optimizer); {limit}")


@pytest.mark.parametrize(
    "between",
    ["pass", "norm = model.weight.grad.norm().item()", "model.weight.grad.div_(4)", "model.bias.grad.zero_()"],
)
def test_what_does_not_limit_them_is_no_fault(tmp_path, between):
    assert "DT504" not in codes(tmp_path, between)


# A scaler of one's own: gradients are cast to float16 by a line of the program, which leaves out a step that overflowed.
BY_HAND = """
torch.manual_seed(0)
net, scale = nn.Linear(10, 1), 2.0**24
x = torch.randn(64, 10)
for step in range(60):
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    (loss * scale).backward()
    half = [p.grad.to(torch.float16) for p in net.parameters()]
    overflow = {asked}
    if overflow:
        scale /= 2
    if {applied}:
        with torch.no_grad():
            for p, g in zip(net.parameters(), half):
                p -= 0.05 * g.float() / scale
    net.zero_grad()
print(net(x).mean().item())
"""
ASKED = {
    "isfinite": "any(not torch.isfinite(g).all() for g in half)",
    "isinf or isnan": "any(bool(torch.isinf(g).any() or torch.isnan(g).any()) for g in half)",
    "of all at once": "not torch.cat([g.flatten() for g in half]).isfinite().all()",
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_step_that_is_left_out_by_hand_does_no_harm(asked, tmp_path):
    program = programs.run(tmp_path, BY_HAND.format(asked=asked, applied="not overflow"), numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == []


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_step_that_is_taken_all_the_same_does(asked, tmp_path):
    program = programs.run(tmp_path, BY_HAND.format(asked=asked, applied="True"), numerics=True)
    assert program.findings[0].code == "DT301" and program.findings[0].severity != "note"
