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
