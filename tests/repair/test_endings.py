"""How a program ends is part of every verdict: no patch is proven or written whose program dies at the call that was
refused."""

from __future__ import annotations

import subprocess
import time

import pytest
import torch
import warm

import dtypetrace
from dtypetrace.repair import children
from dtypetrace.repair.clock import Clock, OutOfTime

HEAD = "import sys\nimport torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
NET = "net = nn.Linear(4, 2).bfloat16()\n"
CALL = NET + "x = torch.randn(3, 4)\nprint(net(x).float().sum().item())\n"

PACKED = """
packed = torch.randint(0, 255, (16, 1), dtype=torch.uint8)
given, bias = torch.randn(3, 8, dtype=torch.bfloat16), torch.zeros(16, dtype=torch.bfloat16)
print(torch.nn.functional.linear(given, packed, bias))
"""
NOT_DEFINITE = "covariance = -torch.eye(3).half()\nprint(torch.linalg.cholesky(covariance))\n"
OUT_OF_RANGE = "print(nn.Embedding(4, 3)(torch.tensor([1.0, 7.0])))\n"
SECOND_ROUND = NET + "for width in (4, 5):\n    x = torch.randn(3, width)\n    print(net(x).float().sum().item())\n"


def fix(folder, text, *options):
    (folder / "program.py").write_text(HEAD + text)
    return warm.run(["-m", "dtypetrace", "fix", *options, "program.py"], folder, timeout=300)


@pytest.mark.parametrize("text", [NOT_DEFINITE, OUT_OF_RANGE, SECOND_ROUND], ids=["kernel", "ids", "second round"])
def test_a_program_that_dies_at_the_same_call_is_not_proven_and_not_written(tmp_path, text):
    done = fix(tmp_path, text, "--write")
    assert done.returncode == 1, done.stderr
    assert "\nproven: " not in done.stderr and "not proven: " in done.stderr
    assert (tmp_path / "program.py").read_text() == HEAD + text
    assert "how it ends: by itself, " in done.stderr


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("", "with casts inserted, exit status 0; patched, exit status 0"),
        ("sys.exit(3)\n", "with casts inserted, exit status 3; patched, exit status 3"),
        ("open('/nowhere/at/all')\n", "with casts inserted, FileNotFoundError at program.py:8; patched, FileNotFoundError at program.py:8"),
    ],
)  # fmt: skip
def test_how_a_proven_program_ends_is_said(tmp_path, end, said):
    done = fix(tmp_path, CALL + end)
    assert done.returncode == 0 and "\nproven: " in done.stderr, done.stderr
    assert f"how it ends: by itself, RuntimeError at program.py:7; {said}\n" in done.stderr, done.stderr


def test_the_time_is_known_after_the_first_run():
    """Without a budget, a slow program gets as long as four more runs take."""
    assert Clock().planned == "" and Clock().left is None
    slow = Clock(longest=31.0)
    assert slow.planned == "run 1 took 31 s. The next runs take about as long each; they end after 5 min (--budget)"
    assert slow.ends == 31.0 + 240.0 and Clock(longest=100.0).ends == 500.0
    assert Clock(120.0, longest=31.0).planned.endswith("they end after 2 min (--budget)")


def test_no_run_begins_that_the_time_is_too_short_for():
    Clock(60.0, longest=10.0).start()
    with pytest.raises(OutOfTime, match="used up"):
        Clock(60.0, began=time.monotonic() - 55.0, longest=10.0).start()


def test_a_run_that_takes_longer_than_the_time_that_is_left_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        children.run(["sleep", "600"], 0.1)
    assert not children._running


@pytest.mark.parametrize(("text", "kind"), [(PACKED, "mat1 and mat2 shapes"), (NOT_DEFINITE, "Factorization".lower()), (OUT_OF_RANGE, "out of range")])  # fmt: skip
def test_a_call_that_casts_do_not_let_run_raises_the_programs_own_exception(text, kind):
    scope = {"torch": torch, "nn": torch.nn}
    with pytest.raises(Exception) as alone:
        exec(text, dict(scope))
    with pytest.raises(type(alone.value)) as healed, dtypetrace.trace(autofix=True) as t:
        exec(text, dict(scope))
    assert str(healed.value) == str(alone.value) and healed.value.__context__ is None
    (found,) = (f for f in t.findings if f.kind == "collision")
    assert any(kind in note and "a cast is not enough" in note for note in found.notes)
    assert found.fix is None or not found.fix.edits
    assert not t.fixes and not t.diff()
