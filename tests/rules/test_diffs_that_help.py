"""Diffs of findings about damaged values: shown only where they can mend, and all that belongs to one change."""

from __future__ import annotations

import followed
import programs
import pytest

from dtypetrace.records import CAST, RECAST, Change, Edit, Finding, Fix, Frame, Operand, Origin, Place, Tried
from dtypetrace.rules.findings import _only_if_it_helps


def at(line: int) -> Place:
    return Place((Frame("program.py", line, "main", True, 1),))


def shown(*lines: int, target: str = CAST, born: int = 1, roundings: int = 15) -> bool:
    """Whether edits at some lines are shown for a finding at line 9 whose trial left so many roundings out."""
    edits = tuple(Edit("program.py", (n, 1), (n, 2), "x", "x.float()", Change(target)) for n in lines)
    culprit = Operand(0, "x", "float16", (), "", None, Origin("cast", None, "to", at(born), True))
    finding = Finding("DT308", "precision-loss", "warning", "", "forward", "mul", None, "", 1, False, at(9), (), culprit,
                      (), Fix("dtype", at(9), edits, True, "compute it in float32"), None,
                      tried=Tried("mean", at(9), 0.5, 0.0, "error", roundings))  # fmt: skip
    fix = _only_if_it_helps(finding).fix
    return fix is not None and bool(fix.edits)


@pytest.mark.parametrize("lines", [(9,), (9, 9), (8, 8)])
def test_casts_in_one_call_are_no_diff_where_many_roundings_did_it(lines):
    assert not shown(*lines) and shown(*lines, roundings=2)


def test_what_changes_more_than_one_call_is_a_diff():
    assert shown(8, 9) and shown(8, born=8) and shown(9, target=RECAST)


PARTS = """
import torch
torch.manual_seed(0)
scale = 1e-5
for _ in range(3):
    spec = torch.fft.rfft(torch.randn(4, 64) * scale)
    one, two = torch.randn(4, 33) * scale, torch.randn(4, 33) * scale
    {casts}
    power = a * a + b * b
    level = torch.log10(power.float() + 1e-16)
    print(level.mean().item())
"""
CASTS = {
    "of two parts": "a, b = spec.real.to(torch.float16), spec.imag.to(torch.float16)",
    "by a name": "a, b = one.half(), two.half()",
    "in a list": "a, b = [one.to(torch.float16), two.to(torch.float16)]",
}


@pytest.mark.parametrize("how", CASTS)
def test_the_casts_of_one_line_are_left_out_together(how, tmp_path):
    text = PARTS.format(casts=CASTS[how])
    program = programs.run(tmp_path, text, numerics=True, reference=True)
    finding = next(f for f in program.findings if f.severity != "note")
    assert finding.fix is not None and len(finding.fix.edits) != 1
    mended = followed.applied(program.text, finding.fix.edits, program.file)
    again = programs.run(tmp_path, mended, name="mended.py", numerics=True, reference=True)
    assert again.error is None and not [f for f in again.findings if f.severity != "note"], mended
