"""Edits against what compiled code does otherwise, each proven by compiling again: here the runs are made.

Real programs are compiled and fixed in evidence/test_compiled_programs.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dtypetrace.records import Edit, Place
from dtypetrace.repair import compiled

ADVISED, LEFT_OUT = (Edit("p.py", (n, 1), (n, 4), f"old{n}", f"new{n}") for n in (1, 2))
FOUND = SimpleNamespace(
    code="DT206", severity="warning", kind="unrounded", title="a rounding is left out", site=Place(), op="amax", module="",
    culprit=None, fix=SimpleNamespace(why="round as eager does", edits=(ADVISED,)),
)  # fmt: skip
EAGER = SimpleNamespace(recording=SimpleNamespace(meta={"compiled": "eager"}), error=None)


class Program:
    """Stands for a repair of a program whose finding is gone once one of some edits was made."""

    def __init__(self, *healed_by: Edit) -> None:
        self.healed_by, self.tries, self.run = healed_by, [], lambda *args, **options: None

    def tried(self, changes, done):
        self.tries.append([*changes])
        found = () if set(changes) & set(self.healed_by) else (FOUND,)
        graph = SimpleNamespace(measured=(), nodes=())
        regions = (SimpleNamespace(steps=(), graphs=(graph,), measured=False),)
        return SimpleNamespace(recording=SimpleNamespace(found=found, regions=regions, text=None), error=None)

    def say(self, text):
        pass

    def located(self, edit):
        return [edit]

    def new_findings(self, before, after):
        return []


@pytest.fixture
def apart(monkeypatch):
    """How far the values are from those of eager."""
    values = {"apart": 0.0}
    monkeypatch.setattr(compiled.rules, "find", lambda recording: recording.found)
    monkeypatch.setattr(compiled.compiling, "leaving_out", lambda text, place, names: LEFT_OUT)
    monkeypatch.setattr(compiled, "tolerance", lambda recording: 0.01)
    monkeypatch.setattr(compiled, "same_error", lambda one, other: True)
    monkeypatch.setattr(compiled, "finite", lambda outcome: True)
    monkeypatch.setattr(compiled, "_apart", lambda one, other: values["apart"])
    return values


def test_the_advised_edit_is_proven_by_one_more_run(apart):
    program = Program(ADVISED)
    mended = compiled.as_compiled(program, EAGER)
    assert program.tries == [[], [ADVISED]] and mended.changes == [ADVISED] and mended.done == "round as eager does"
    assert mended.proof.proven and mended.proof.why == (
        "compiled again, the finding is gone; its values equal those of the program run eagerly"
    )


def test_where_it_does_not_help_the_call_is_left_out_of_the_compiled_code(apart):
    program = Program(LEFT_OUT)
    mended = compiled.as_compiled(program, EAGER)
    assert program.tries == [[], [ADVISED], [LEFT_OUT]] and mended.proof.proven
    assert mended.done == "leave old2 out of the compiled code"
    assert mended.rejected == (("round as eager does", "DT206 is still found: a rounding is left out"),)


def test_an_edit_after_which_the_finding_or_other_values_stay_is_not_proven(apart):
    assert compiled.as_compiled(Program(), EAGER).proof.why == "DT206 is still found: a rounding is left out"
    apart["apart"] = 0.5
    mended = compiled.as_compiled(Program(ADVISED), EAGER)
    assert not mended.proof.proven and mended.rejected == (
        ("round as eager does", "its values differ by 50.00% from those of the program run eagerly"),
    )


def test_nothing_is_compiled_again_where_nothing_was(apart):
    plain = SimpleNamespace(recording=SimpleNamespace(meta={}), error=None)
    assert compiled.as_compiled(Program(), plain) is None
