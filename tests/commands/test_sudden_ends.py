"""Calls that end a process without Python's own end: the report comes first, and the program ends as under python."""

from __future__ import annotations

import json
import os
import pickle
import sys

import pytest
from test_run import RUN, both, both_forked, forked, same, write

from dtypetrace.commands.signals import FatalSignals
from dtypetrace.commands.sudden_ends import SuddenEnds

pytestmark = pytest.mark.slow

REFUSED = """
    import os, sys, threading
    import torch
    sys.stdout.write("not flushed, so lost")
    def refused():
        try:
            torch.nn.Linear(2, 2).half()(torch.ones(1, 2))
        except RuntimeError:
            ends()
"""
ENDS = {
    "os._exit": "def ends(): os._exit(9)",
    "os._exit, imported by name": "from os import _exit; ends = lambda: _exit(3)",
    "os._exit with text in the buffer": "def ends():\n    print('lost, too', end=''); os._exit(0)",
    "os.abort": "ends = os.abort",
    "os.execv": "def ends(): os.execv(sys.executable, [sys.executable, '-c', 'print(1); raise SystemExit(4)'])",
    "os.execvp, not the first that is tried": """
def ends():
    os.environ["PATH"] = os.pathsep.join(["/nowhere", os.path.dirname(sys.executable)])
    os.execvp(os.path.basename(sys.executable), ["python", "-c", "raise SystemExit(5)"])
""",
    "os._exit in a thread": """
def ends():
    thread = threading.Thread(target=os._exit, args=(6,)); thread.start(); thread.join()
""",
    "a child that ended so first": """
def ends():
    for end in (lambda: os._exit(2), lambda: os.execv(sys.executable, [sys.executable, "-c", "1"]), os.abort):
        child = os.fork()
        if not child:
            end()
        os.write(1, str(os.waitpid(child, 0)[1]).encode())
    os._exit(7)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_report_comes_first(tmp_path, end):
    write(tmp_path, program=REFUSED)
    with open(tmp_path / "program.py", "a") as file:
        file.write(f"{ENDS[end]}\nrefused()\n")
    started = both if end == "os._exit" else both_forked
    rest = same(*started(["program.py"], tmp_path, options=["--json", "out.json", "--save", "run.trace"]))
    level = "note" if "thread" in end else "error"  # another thread does not handle the exception
    assert rest.startswith(f"{level}[DT101]") and rest.count("[DT101]") == 1
    assert [f["code"] for f in json.loads((tmp_path / "out.json").read_text())["findings"]] == ["DT101"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "program.py", "run.trace"]


def test_a_program_that_could_not_be_replaced_is_watched_further(tmp_path):
    write(
        tmp_path,
        program="""
            import os, torch
            for name, words in (("/nowhere/at/all", ["x"]), ("/", ["x"]), (__file__, ["x"]), (None, 1)):
                try:
                    os.execv(name, words)
                except Exception as error:
                    print(type(error).__name__)
            torch.nn.Linear(2, 2).half()(torch.ones(1, 2))
        """,
    )
    plain, traced = both_forked(["program.py"], tmp_path)
    assert traced.out == plain.out and traced.status == 1
    assert traced.err.count("error[DT101]") == 1 and "os.execv" not in traced.err


def test_fail_on_counts_for_these_ends_too(tmp_path):
    write(tmp_path, program=REFUSED + "    ends = lambda: os._exit(int(sys.argv[1]))\n    refused()\n")
    for given, status in ((0, 1), (5, 5)):
        traced = forked(tmp_path, *RUN[1:], "--fail-on", "error", "program.py", str(given))
        assert traced.status == status, traced.err


def test_nothing_stays_behind():
    before = {name: getattr(os, name) for name in ("_exit", "abort", "execv", "execve")}
    ends = SuddenEnds(lambda call, error: 0, FatalSignals(lambda name: None))
    ends.install()
    assert os._exit is not before["_exit"] and pickle.loads(pickle.dumps(os._exit)) is os._exit
    ends.remove()
    assert {name: getattr(os, name) for name in before} == before
    assert {name: getattr(sys.modules["posix"], name) for name in before} == before
