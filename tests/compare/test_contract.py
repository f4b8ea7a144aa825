"""Contracts: a run that is kept, and what another run changed, with the line that changed it."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
import warm
from recordings import RecordingBuilder

from dtypetrace import saved
from dtypetrace.compare.differences import compare
from dtypetrace.records import Parameter, Plan
from dtypetrace.records.measurements import State, Update
from dtypetrace.results import conclude


def run(*norms: str, model: str = "net", scaler: bool = False, above: int = 0, last: str = ""):
    """A layer for each dtype of norm weights, in float32 at ``last``; what they make is read by a head."""
    b = RecordingBuilder()
    for _ in range(above):
        b.line()
    x = b.made("bfloat16", text="x = «torch.randn(4, 4, dtype=torch.bfloat16)»")
    updates = []
    for n, norm in enumerate(norms):
        own = b.made(norm, "cast", explicit=True, text=f"net.layers[{n}].norm.to(«torch.{norm}»)").as_parameter(
            f"{model}.layers.{n}.norm.weight"
        )
        b.parameters.append(Parameter(own.name, norm, 16, own.event))
        updates.append(update(own.name, norm, own.event))
        made = b.ran("mul", x, own, out=norm, module=f"{model}.layers.{n}.norm", text="y = «x * self.weight»")
        made = b.ran(
            "to",
            made,
            out="bfloat16",
            aten="_to_copy.default",
            module=f"{model}.layers.{n}.norm",
            text="y = «y.to(x.dtype)»",
        )
        x = b.ran(
            "linear", made, module=f"{model}.layers.{n}.mlp", autocast="cpu:bfloat16", text="return «self.mlp(y)»"
        )
    b.ran("linear", x, out=last or "bfloat16", module=f"{model}.head", text="return «self.head(x)»")
    recording = dataclasses.replace(
        b.recording, modules=tuple(dict.fromkeys(o.module for o in b.ops)), updates=tuple(updates)
    )
    return dataclasses.replace(recording, plans=(Plan(0, "Net", scaler=scaler),))


def update(name: str, dtype: str, event: int) -> Update:
    state = (State("exp_avg", dtype, 0.0), State("exp_avg_sq", "float32", 0.0))
    return Update(name, dtype, (4, 4), event, 0, "AdamW", 3, 1e-3, 1e-8, dtype, event, 0, 0, 0, 1.0, 0.0, 9, 9, True, 0, 1.0, 0.1, state=state)  # fmt: skip


def test_other_ops_in_the_same_dtypes_break_no_contract():
    one, other = run("float32", "float32"), run("float32", "float32", above=3)
    assert compare(one, other).in_dtypes.same
    change, *_ = compare(one, run("float32", "bfloat16")).in_dtypes.differences
    assert [s.dtype for s in change.sides] == ["float32", "bfloat16"] and change.sides[1].origin.line > 0
    assert compare(one, run("float32", "float32", scaler=True)).in_dtypes.settings


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "dtypetrace", "contract", *words], folder)


def test_traces_are_written_and_checked(tmp_path):
    for name, norm in (("a", "float32"), ("b", "bfloat16")):
        saved.save(tmp_path / f"{name}.trace", conclude(run(norm, norm)))
    assert command(tmp_path, "write", "--trace", "a.trace").stdout == "dtypetrace contract: wrote dtypes.contract\n"
    same, other = (command(tmp_path, "check", "--trace", f"{name}.trace") for name in "ab")
    assert (same.returncode, same.stdout) == (0, "dtypetrace contract: the run matches dtypes.contract\n")
    assert other.returncode == 1 and "1. layers.0.norm.weight: float32 in a, bfloat16 in b\n" in other.stdout


def test_wrong_use_is_one_line(tmp_path):
    for words, says in (
        (["check", "step.py"], "dtypes.contract cannot be read"),
        (["write"], "give either a program or --trace"),
        (["write", "--trace", "no.trace"], "no.trace cannot be read"),
    ):
        ended = command(tmp_path, *words)
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and says in ended.stderr


@pytest.mark.slow
def test_a_program_is_run_and_one_that_fails_writes_nothing(tmp_path):
    (tmp_path / "step.py").write_text(
        "import sys, torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\nsys.exit(int(sys.argv[1]))\n"
    )
    ended = command(tmp_path, "write", "step.py", "3")
    assert ended.returncode == 2 and "step.py ended with status 3" in ended.stderr
    assert not (tmp_path / "dtypes.contract").exists()
    assert command(tmp_path, "write", "step.py", "0").returncode == 0
    assert command(tmp_path, "check", "step.py", "0").returncode == 0
