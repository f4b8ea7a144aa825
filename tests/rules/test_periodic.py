"""Large numbers that are reduced to a period in float32."""

from __future__ import annotations

import programs
import pytest

TIMES = """
import numpy as np
seconds = 1_700_000_000 + np.arange(0, 86_400, 7)
times = torch.from_numpy(seconds.astype(np.float32))  # converted
"""


@pytest.mark.parametrize(
    "use",
    [
        "(times[:64] % 300 / 300).sum()",
        "torch.fmod(times[:64] + 0, 300.0).sum()",
        "torch.sin(times[:64] * 0.1).sum()",
        "(times[:64] * 0.1).cos().sum()",
    ],
)
def test_times_that_are_too_far_apart_for_their_period(use, tmp_path):
    program = programs.run(tmp_path, f"{TIMES}{use}", numerics=True)
    (f,) = (f for f in program.findings if f.severity != "note")
    assert (f.code, f.kind) == ("DT204", "downcast")
    assert program.at(f.culprit.origin.place).endswith("# converted")


@pytest.mark.parametrize(
    "use",
    [
        "((times - times[0])[:64] % 300 / 300).sum()",  # small enough now
        "(times[:64].double() % 300).sum()",
        "(torch.arange(8_000_000, 8_000_064).float() % 24).sum()",  # float32 holds such integers exactly
        "torch.sin(torch.linspace(0, 1e4, 64)).abs().sum()",
        "(times[:64] / 300).sum()",
    ],
)
def test_numbers_with_all_digits_that_the_period_needs(use, tmp_path):
    program = programs.run(tmp_path, f"{TIMES}{use}", numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == []
