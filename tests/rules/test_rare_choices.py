"""Choices among a few by noise that is drawn in 16 bits: where the noise does not reach what is rare, it never comes."""

from __future__ import annotations

import programs
import pytest

_DRAWS = """
u = torch.rand({many}, len(logits), dtype=torch.{dtype})
noise = -torch.log(-torch.log(u.clamp(1e-6, 1 - 1e-6)))
tokens = (logits + noise).argmax(-1)
counts = torch.bincount(tokens, minlength=len(logits))
"""
_EXPONENTIAL = """
waits = -torch.log(torch.rand({many}, len(logits), dtype=torch.{dtype}).clamp(min=1e-6))
tokens = (waits.log() - logits).argmin(-1)
counts = torch.bincount(tokens, minlength=len(logits))
"""
_RARE = "logits = torch.tensor([0.9, 0.06, 0.03, 0.008, 0.0015, 0.0005]).log()"
_EVEN = "logits = torch.tensor([0.3, 0.2, 0.2, 0.1, 0.1, 0.1]).log()"


def found(tmp_path, text, logits):
    program = programs.run(tmp_path, logits + text, before="torch.manual_seed(0)", numerics=True)
    assert program.error is None
    return [
        (f.code, "torch.rand" in program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"
    ]


@pytest.mark.parametrize("text", [_DRAWS, _EXPONENTIAL], ids=["Gumbel", "exponential"])
def test_what_is_rare_never_comes(text, tmp_path):
    assert found(tmp_path, text.format(many=20000, dtype="bfloat16"), f"{_RARE}.bfloat16()") == [("DT204", True)]


@pytest.mark.parametrize("text", [_DRAWS, _EXPONENTIAL], ids=["Gumbel", "exponential"])
@pytest.mark.parametrize(
    ("many", "dtype", "logits"), [(64, "bfloat16", _RARE), (20000, "float32", _RARE), (20000, "bfloat16", _EVEN)]
)
def test_what_the_noise_reaches(text, many, dtype, logits, tmp_path):
    assert found(tmp_path, text.format(many=many, dtype=dtype), logits) == []
