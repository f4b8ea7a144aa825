"""One line says in which dtypes the work ran, another what could not be judged."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.records import NotJudged, Recording
from dtypetrace.render import coverage


def trained(steps: int, numerics: bool = True, autocast: bool = False):
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with dtypetrace.trace(net, precision="values" if numerics else "off") as t:
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                y = net(torch.randn(4, 8))
            y.float().square().mean().backward()
            optimizer.step()
    return t


def test_one_step_is_too_few_to_judge_updates():
    t = trained(1)
    assert "not judged: updates (2 weights moved in too few measured steps: watch 2 steps)" in repr(t)
    assert json.loads(t.to_json())["not_judged"] == [{"family": "updates", "id": "few steps", "count": 2, "needs": 2}]
    assert "not judged" not in repr(trained(2))


def test_values_that_were_not_measured_are_said():
    line = coverage.not_judged_line(trained(2, numerics=False).recording)
    assert line.startswith("not judged: values and updates (not measured")


def test_hooks_may_add_a_fact():
    line = coverage.not_judged_line(Recording(not_judged=(NotJudged("values", "compiled", count=2),)))
    assert line == "not judged: values (compiled)"


def test_the_share_of_the_work_by_dtype():
    assert coverage.work_line(trained(1).recording) == "matmuls: float32; weights: float32"
    assert coverage.work_line(trained(1, autocast=True).recording) == "matmuls: bfloat16; weights: float32"
    with dtypetrace.trace() as t:
        torch.ones(2, 100) @ torch.ones(100, 3)
        torch.ones(2, 25, dtype=torch.bfloat16) @ torch.ones(25, 4, dtype=torch.bfloat16)
    assert coverage.work_line(t.recording) == "matmuls: 75% float32, 25% bfloat16"


@pytest.mark.parametrize(
    ("trained", "says"),
    [
        ("lora", "LoRA weights: all 2 moved"),
        ("head", "LoRA weights: none of 2 is trained (requires_grad is off)"),
    ],
)
def test_a_run_says_whether_its_lora_weights_moved(trained, says):
    net = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4, bias=False) for name in ("lora_A", "lora_B", "head")})
    for name, part in net.items():
        part.requires_grad_(trained in name)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    with dtypetrace.trace(net) as t:
        for _ in range(2):
            out = torch.ones(2, 4)
            for part in net.values():
                out = part(out)
            out.sum().backward()
            optimizer.step()
    assert coverage.lora(t.recording) == says and coverage.work_line(t.recording).endswith(says)
