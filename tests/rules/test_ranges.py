"""Values that leave the range of float16: where it began, whether it does harm, and what should change."""

from __future__ import annotations

import programs
import pytest

HAND_SCALED = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
optimizer, scale = torch.optim.SGD(net.parameters(), 1e-3), 2.0**24
for _ in range(8):
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(torch.randn(16, 8))
    loss = F.cross_entropy(out.float(), torch.arange(16) % 4)
    optimizer.zero_grad()
    (loss * scale).backward()
    if LOOKED:
        for p in net.parameters():
            p.grad /= scale
        optimizer.step()
    else:
        scale /= 4
"""


def reported(tmp_path, text: str) -> list[tuple[str, str]]:
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None, program.error
    return [(f.code, program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"]


def test_infinite_gradients_do_no_harm_where_the_program_leaves_the_step_out(tmp_path):
    looked = "all(torch.isfinite(p.grad).all() for p in net.parameters())"
    assert reported(tmp_path, HAND_SCALED.replace("LOOKED", looked)) == []
    assert [code for code, _ in reported(tmp_path, HAND_SCALED.replace("LOOKED", "True"))] == ["DT301"]


@pytest.mark.parametrize("model", ["half", "float"])
def test_a_cast_to_the_dtype_of_a_right_tensor_is_the_culprit(model, tmp_path):
    """``to(x.dtype)`` of a float16 stream in a float16 model; in a float32 model the stream itself has the wrong dtype."""
    text = f"""
    net = nn.Linear(4, 4).{model}()
    with torch.no_grad():
        net(torch.randn(2, 4).{model}())
        x = torch.randn(2, 4).half()  # stream
        away = (1 - torch.zeros(2, 4, dtype=torch.long).to(x.dtype)) * -1e9  # cast
        (x + away).softmax(-1)
    """
    ((code, line),) = reported(tmp_path, text)
    assert (code, line.rpartition("# ")[2]) == ("DT301", "cast" if model == "half" else "stream")


def test_an_infinite_loss_is_harm_and_an_infinity_that_is_looked_for_is_none(tmp_path):
    text = """
    torch.manual_seed(0)
    net = nn.Linear(64, 64).half()
    x = torch.randn(64, 64).half() * 8
    loss = F.mse_loss(net(x), x, reduction="sum") / 4096
    USED
    """
    program = programs.run(tmp_path, text.replace("USED", "loss.backward()"), numerics=True)
    assert [(f.code, f.severity) for f in program.findings] == [("DT301", "warning")]
    assert program.only.fix.place == program.only.site, "the model computes as configured: only this op has to change"
    assert reported(tmp_path, text.replace("USED", "print(loss.item())")) != []
    assert reported(tmp_path, text.replace("USED", "loss.clamp(max=100).item()")) == []


def test_gradients_that_were_divided_by_an_infinity(tmp_path):
    """The norm to clip by overflows; the zeros that come of it are its consequence."""
    text = """
    torch.manual_seed(0)
    net = nn.Linear(64, 8).half()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        ((net(torch.randn(64, 64).half()).float() - 30).square().mean() * 512).backward()
        norm = sum(p.grad.square().sum() for p in net.parameters()).sqrt()
        for p in net.parameters():
            p.grad.mul_((1 / norm).clamp(max=1))
        optimizer.step()
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert [(f.code, f.severity) for f in program.findings] == [("DT301", "warning"), ("DT305", "note")], program.trace
