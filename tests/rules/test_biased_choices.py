"""Choices by numbers that a cast rounded before a bias was added to them."""

from __future__ import annotations

import programs
import pytest

_CHOICE = """
weight, bias = torch.randn(256, 64) * {spread}, torch.randn(256) * 1e-3
for _ in range(4):
    scores = torch.sigmoid(torch.randn(512, 64) @ weight.T).to(torch.{dtype})
    chosen = {choice}
print(chosen.sum())
"""
_BIASED = "(bias + scores.float()).topk(4).indices"
_NOISE = "(scores.float() + torch.randn(512, 256)).topk(4).indices"


def found(tmp_path, **made):
    program = programs.run(tmp_path, _CHOICE.format(**made), before="torch.manual_seed(0)", numerics=True)
    assert program.error is None
    return [(f.code, f.culprit.origin.kind) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("choice", [_BIASED, "(scores.float() - bias).argmax(-1)"])
def test_a_bias_does_not_hide_the_cast(choice, tmp_path):
    assert found(tmp_path, spread=0.02, dtype="bfloat16", choice=choice) == [("DT308", "cast")]


@pytest.mark.parametrize(
    ("spread", "dtype", "choice"), [(0.02, "float32", _BIASED), (0.2, "float16", _BIASED), (0.02, "bfloat16", _NOISE)]
)
def test_what_is_told_apart_and_what_noise_decides(spread, dtype, choice, tmp_path):
    assert found(tmp_path, spread=spread, dtype=dtype, choice=choice) == []
