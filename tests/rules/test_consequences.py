"""What trials say of several findings of one run, and lines that took their dtype from another one."""

from __future__ import annotations

import followed
import programs
import pytest
from recordings import RecordingBuilder

from dtypetrace.records import Finding, Frame, Operand, Origin, Place, Tried
from dtypetrace.rules.consequences import left_out

EMPTY = RecordingBuilder().recording


def found(line: int, code: str, kind: str, unit: str, before: float = 0.5, roundings: int = 1) -> Finding:
    """A warning about a dtype that was decided at a line, and whose trial brings back what was lost."""
    place = Place((Frame("program.py", line, "main", True, 1),))
    culprit = Operand(0, "x", "float16", (), "", None, Origin("cast", None, "to", place, True))
    return Finding(code, kind, "warning", code, "forward", "mul", None, "", 1, False, place, (), culprit, (), None, None,
                   tried=Tried("mean", place, before, 0.0, unit, roundings))  # fmt: skip


INFINITE = found(1, "DT301", "overflow", "error", 1e6)
WHOLE = found(2, "DT203", "downcast", "spoilt")
VAGUE = {
    "one rounding, beside an infinity": (found(3, "DT203", "downcast", "error", 2e-4), INFINITE),
    "one rounding, beside what is cut off": (found(3, "DT308", "precision-loss", "error", 2e-3), WHOLE),
    "a checkpoint that is rounded, beside zeros": (
        found(3, "DT408", "plan", "error", 2e-4),
        found(4, "DT302", "underflow", "spoilt"),
    ),
    "zeros of one call, beside integers that wrap": (
        found(3, "DT302", "underflow", "spoilt"),
        found(4, "DT301", "overflow", "spoilt"),
    ),
    "what takes many roundings, beside an infinity": (found(3, "DT302", "underflow", "error", 1.0, 15), INFINITE),
}
OWN = {
    "one rounding, beside another one": (
        found(3, "DT203", "downcast", "error", 2e-4),
        found(4, "DT203", "downcast", "error", 1e-3),
    ),
    "zeros that spoil a result, beside an infinity": (found(3, "DT302", "underflow", "error"), INFINITE),
    "zeros of one call, beside what is cut off": (found(3, "DT302", "underflow", "spoilt"), WHOLE),
    "what takes many roundings, beside what is cut off": (found(3, "DT308", "precision-loss", "error", 1.0, 15), WHOLE),
}


@pytest.mark.parametrize("how", VAGUE)
@pytest.mark.parametrize("turned", [False, True])
def test_a_trial_that_says_little_beside_one_that_says_much(how, turned):
    given = VAGUE[how][::-1] if turned else VAGUE[how]
    assert {f.code: f.severity for f in left_out(EMPTY, (), given)} == {
        VAGUE[how][0].code: "note",
        VAGUE[how][1].code: "warning",
    }


@pytest.mark.parametrize("how", OWN)
def test_two_findings_of_which_each_speaks_for_itself(how):
    assert [f.severity for f in left_out(EMPTY, (), OWN[how])] == ["warning", "warning"]


COUNTED = """
hit = torch.zeros((), dtype=torch.bfloat16)
miss = {like}
for n in range(900):
    hit = hit + torch.ones(())[None].sum().to({dtype})
    miss = miss + torch.ones(())[None].sum().to({dtype})
print(hit.item(), miss.item())
"""
LIKE = {
    "as another": "torch.zeros_like(hit)",
    "with its dtype": "torch.zeros((), dtype=hit.dtype)",
    "filled, with its dtype": "torch.full((), 0.0, dtype=hit.dtype)",
}


@pytest.mark.parametrize("how", LIKE)
def test_what_took_its_dtype_from_another_one_is_told_there(how, tmp_path):
    text = COUNTED.format(like=LIKE[how], dtype="hit.dtype")
    program = programs.run(tmp_path, text, numerics=True)
    (finding,) = [f for f in program.findings if f.severity != "note"]
    assert finding.culprit is not None and program.at(finding.culprit.origin.place).startswith("hit =")
    assert finding.fix is not None
    mended = programs.run(
        tmp_path, followed.applied(program.text, finding.fix.edits, program.file), name="mended.py", numerics=True
    )
    assert [f.code for f in mended.findings if f.severity != "note"] == []


def test_two_that_were_decided_apart_are_two(tmp_path):
    text = COUNTED.format(like="torch.zeros((), dtype=torch.bfloat16)", dtype="torch.bfloat16")
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == ["DT307", "DT307"]
