"""Ctrl-C in ``fix`` and ``plan``: one line, and nothing is left behind; options that stand after the script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_run import ROOT, both, finish, run, start, write

pytestmark = pytest.mark.slow

PROGRAM = """
    import subprocess, sys, tempfile, time
    import torch
    folder = tempfile.TemporaryDirectory(dir=".")
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], stderr=subprocess.DEVNULL)
    torch.ones(2)
    print("under way", other.pid, file=sys.stderr, flush=True)
    try:
        while True:
            time.sleep(0.1)
    finally:
        other.kill()
"""
STUBBORN = """
    import signal, sys, time, torch
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("under way", 0, file=sys.stderr, flush=True)
    time.sleep(300)
"""


WAYS = {"terminal": (PROGRAM, True), "kill": (PROGRAM, False), "stubborn": (STUBBORN, True)}
SAMPLED = [("plan", "terminal"), ("fix", "kill"), ("fix", "stubborn")]


def running(session: int) -> list[str]:
    """The processes of a session that are not only waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its) == session and state not in "ZX":
            found.append((stat.parent / "cmdline").read_text())
    return found


@pytest.mark.parametrize(
    ("command", "way"),
    [
        pytest.param(command, way, marks=() if (command, way) in SAMPLED else pytest.mark.exhaustive)
        for command in ("fix", "plan")
        for way in WAYS
    ],
)
def test_one_line_and_nothing_left(tmp_path, command, way):
    text, reaches_all = WAYS[way]
    write(tmp_path, program=text)
    env = dict(os.environ, PYTHONPATH=str(ROOT), TMPDIR=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "dtypetrace", command, "program.py"],
        cwd=tmp_path, env=env, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while "under way" not in (line := process.stderr.readline()):
        assert line, "it ended before the program ran"
    (os.killpg if reaches_all else os.kill)(process.pid, signal.SIGINT)
    ended = finish(process)
    assert (ended.status, ended.out, ended.err) == (-signal.SIGINT, "", f"dtypetrace {command}: interrupted\n")
    until = time.monotonic() + 60
    while running(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not running(process.pid)
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(("torch", "__"))] == ["program.py"]


PARSERS = {
    "argparse": "import argparse; p = argparse.ArgumentParser(); p.add_argument('--lr'); p.parse_args()",
    "click": "import sys; sys.stderr.write('Error: No such option: ' + sys.argv[1]); sys.exit(2)",
    "transformers": "import sys; raise ValueError('Some specified arguments are not used: ' + str(sys.argv[1:]))",
}


@pytest.mark.parametrize("kind", PARSERS)
def test_an_option_after_the_script_is_pointed_out(tmp_path, kind):
    write(tmp_path, program=PARSERS[kind])
    for option, command in (("--html", "run"), ("--write", "fix")):
        started = start([sys.executable, "-m", "dtypetrace", command, "program.py", f"{option}=x"], tmp_path)
        said = finish(started).err.splitlines()[-1]
        assert said.startswith(f"dtypetrace: {option} stands after program.py, so the script got it"), said
        assert f"dtypetrace {command} {option} ... program.py" in said


IGNORING = {
    "reads no arguments": "import torch; print(1)",
    "fails for another reason": "rate = {}[5]",
    "its module, too": "import helper",
}
KNOWING = {
    "a dataclass": "import sys\nclass Options:\n    html: str\nprint(sys.argv)",
    "another's parser": "import torch.utils.benchmark as b\nknown = parse_into(b) if 0 else None",
    "its module": "import helper\nhelper.main()",
    "passes them on": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', '', *sys.argv[1:]])",
}


@pytest.mark.parametrize("kind", [*IGNORING, *KNOWING])
def test_an_option_that_a_script_ignores_is_pointed_out(tmp_path, kind):
    helper = "import sys\ndef main(): sys.exit(len(sys.argv) > 5)" if kind in KNOWING else "x = 1"
    write(tmp_path, program={**IGNORING, **KNOWING}[kind], helper=helper)
    said = run("program.py", "--html", "out.html", cwd=tmp_path).err
    assert ("--html stands after program.py" in said) is (kind in IGNORING), said
    assert "stands after" not in run("program.py", "--lr", "1", cwd=tmp_path).err


def test_a_script_that_knows_the_option_hears_nothing_of_it(tmp_path):
    write(tmp_path, program="import sys; print(sys.argv); sys.exit(int(sys.argv[2]))")
    for words in (["--steps", "0"], ["--steps", "3"], ["--rate", "2"]):
        _, traced = both(["program.py", *words], tmp_path)
        assert "stands after" not in traced.err
    assert "stands after" not in run("-q", "program.py", "--html", "2", cwd=tmp_path).err
