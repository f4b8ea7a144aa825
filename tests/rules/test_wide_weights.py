"""The lines to type where half weights are trained, on recordings made by hand."""

from __future__ import annotations

from recordings import Made, RecordingBuilder

from dtypetrace import graph
from dtypetrace.rules.wide_weights import advice, candidates


def program(half: str, *, autocast: str = "", scaler: bool = False) -> tuple[RecordingBuilder, Made]:
    b = RecordingBuilder()
    b.line("«import torch»")
    weight = b.made(half, "cast", explicit=True, text=f"net = «net.to(torch.{half})»").as_parameter("weight")
    b.ran("linear", b.made(half), weight, autocast=autocast)
    if scaler:
        b.ran(
            "unscale_", b.made("float32"), aten="_amp_foreach_non_finite_check_and_unscale_.default", phase="optimizer"
        )
    return b, weight


def advised(half: str, **more) -> str:
    b, weight = program(half, **more)
    _, lines = advice(b.recording, graph.origin(b.recording, weight.event, half), half)
    return "; ".join(lines)


def test_without_autocast_the_region_is_a_line_of_its_own():
    said = advised("bfloat16")
    assert "train.py:2: replace `torch.bfloat16` with `torch.float32`" in said
    assert 'torch.autocast("cpu", dtype=torch.bfloat16)' in said and "GradScaler" not in said


def test_float16_needs_a_scaled_loss_too():
    assert "GradScaler" in advised("float16") and "GradScaler" not in advised("float16", scaler=True)


def test_a_forward_that_runs_under_autocast_needs_no_region():
    assert "torch.autocast" not in advised("bfloat16", autocast="cpu:bfloat16")


def test_the_lines_name_the_programs_own_optimizer_loss_and_model():
    b = RecordingBuilder()
    b.line("«import torch»")
    weight = b.made("float16", "cast", explicit=True, text="net = «net.to(dtype)»").as_parameter("weight")
    b.line("«opt = torch.optim.SGD(net.parameters(), 0.1)»")
    b.ran("linear", b.made("float16"), weight, text="error = «net(x)»", module="net")
    b.line("«error.backward()»")
    place = b.line("«opt.step()»")
    origin = graph.origin(b.recording, weight.event, "float16")
    _, said = advice(b.recording, origin, "float16", b.recording.places[place])
    assert said == (
        "before the line that makes `opt` (train.py:3): add `for p in net.parameters(): p.data = p.data.float()`",
        'after the line that makes `opt` (train.py:3): add `scaler = torch.amp.GradScaler("cpu")`',
        'train.py:5: call `net(...)` under `torch.autocast("cpu", dtype=torch.float16)`',
        "train.py:6: replace `error.backward()` with `scaler.scale(error).backward()`",
        "train.py:7: replace `opt.step()` with `scaler.step(opt); scaler.update()`",
    )
    alone, region = candidates(b.recording, origin, "float16", b.recording.places[place])
    assert alone.done.endswith("before opt is made") and alone.edits[0].start == (3, 1) and not alone.region
    assert region.region and region.edits[1].after == 'with torch.autocast("cpu", dtype=torch.float16): error'
