"""The runs of `dtypetrace fix` are forks of a process that has imported torch; what they find is what fresh runs find."""

from __future__ import annotations

import os
import sys

import pytest

from dtypetrace.commands import warm_runs
from dtypetrace.records import Event, Place, Recording, Refused, Witness
from dtypetrace.repair import runs
from dtypetrace.repair.runs import Runner
from dtypetrace.repair.warm import imports
from dtypetrace.source.patch import Patch

FAULT = """\
import os, sys
import torch
from torch import nn
with open("parents", "a") as file:
    print(os.getppid(), len(sys.argv), "__main__" if vars() is vars(sys.modules["__main__"]) else "other", file=file)
if os.path.exists("ends"):
    os._exit(3)
torch.manual_seed(0)
net = nn.Linear(4, 2).bfloat16()
loss = net(torch.rand(3, 4)).sum()
loss.backward()
print("loss", loss.item())
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each run starts an interpreter of its own")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'"""Doc."""\nfrom __future__ import annotations\nimport torch as t\nfrom torch import nn\n', 2),
        (b"import torch\nimport os\nos.environ['A'] = '1'\nimport numpy\n", 2),
        (b"from . import own\nimport torch\n", 0),
        (b"from torch import *\nimport torch\n", 0),
        (b"if True:\n    import torch\n", 0),
        (b"import (\n", 0),
    ],
)
def test_only_the_imports_with_which_a_script_begins_are_shared(text, found):
    assert len(imports(text)) == found


def test_modules_of_the_program_are_no_libraries(tmp_path, monkeypatch):
    (tmp_path / "own_module_of_this_test.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(warm_runs._packages("import torch.nn as n, own_module_of_this_test")) == [
        "torch", "own_module_of_this_test"]  # fmt: skip
    assert list(warm_runs._packages("from torch.nn import functional, Linear")) == ["torch"]
    assert warm_runs._of_a_library("torch") and warm_runs._of_a_library("json")
    assert not warm_runs._of_a_library("own_module_of_this_test")


def test_forked_runs_find_what_fresh_ones_find(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(FAULT)
    with Runner(["program.py", "--x"]) as run:
        assert run.warm is not None
        forked = [run(Patch(), shown=False)]
        (tmp_path / "ends").touch()
        with pytest.raises(runs.RunFailed, match="exit status 3"):  # and the next one goes on
            run(Patch(), shown=False)
        (tmp_path / "ends").unlink()
        forked.append(run(Patch(), shown=False))
        server = run.warm.process
    assert server.poll() == 0 and run.warm is None
    fresh = run(Patch(), shown=False)
    parents = [line.split() for line in (tmp_path / "parents").read_text().splitlines()]
    assert parents == [[str(server.pid), "2", "__main__"]] * 3 + [[str(os.getpid()), "2", "__main__"]]
    for found in forked:
        assert found.ledger == fresh.ledger and found.error is None and found.recording.refused
        assert [r.op for r in found.recording.refused] == [r.op for r in fresh.recording.refused]


def test_an_import_of_the_programs_own_that_comes_first_keeps_interpreters_fresh(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("raise RuntimeError('not by the warm interpreter')\n")
    (tmp_path / "program.py").write_text("import own\nimport torch\n")
    with Runner(["program.py"]) as run:
        assert run.warm is None


def test_a_tensor_that_an_import_made_is_looked_at_by_a_fresh_interpreter():
    def refused(how):
        event = Event(how, "", 0, "", (), "float32")
        witness = Witness(0, "x", "float32", (2,), "cpu", event=0)
        call = Refused("linear", None, "forward", "", 0, (witness,), "RuntimeError", "", "", "DT101", "agree")
        return Recording(places=(Place(),), events=(event,), refused=(call,))

    assert runs._older(refused("input")) and not runs._older(refused("factory"))
