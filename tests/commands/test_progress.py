"""The transient text of `dtypetrace run` and `fix`: seen on a terminal only, and the script's own lines stay as they are."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dtypetrace.commands import progress

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("a line of its own")
sys.stdout.write("Epoch 1: ")
sys.stdout.flush()
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print("a warning", file=sys.stderr)
print("loss 1.0")
print("streams as they were:", [k for k in vars(sys.stdout) if k == "write"], file=sys.stderr)
model(torch.ones(2, 4))
"""
AT_ONCE = """
import sys
import dtypetrace.commands.progress as progress
progress.AFTER = progress.EVERY = 0.0
from dtypetrace.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run(
    tmp_path, *options: str, command: str = "run", script: str = SCRIPT, piped_out: bool = False
) -> tuple[str, str]:
    """What the terminal received, and what stdout did where it is a pipe."""
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    (tmp_path / "program.py").write_text(script)
    ours, theirs = pty.openpty()
    environment = dict(os.environ, PYTHONPATH=str(ROOT), TERM="xterm", NO_COLOR="1", COLUMNS="100", LINES="40")
    subprocess.run(["stty", "cols", "100", "rows", "40"], stdin=theirs, check=True)
    process = subprocess.Popen(
        [sys.executable, "at_once.py", command, *options, "program.py"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=subprocess.PIPE if piped_out else theirs,
        stderr=theirs,
    )
    os.close(theirs)
    received = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        received += block
    os.close(ours)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 0, received
    return received.decode(), out.decode() if out is not None else ""


def screen(received: str, columns: int = 100) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines, row, column, kept = [[" "] * columns], 0, 0, (0, 0)
    for escape, steering, text in re.findall(r"\x1b(?:([78])|\[(\d*[CDK]))|([^\x1b])", received):
        if escape == "7":
            kept = (row, column)
        elif escape == "8":
            row, column = kept
        elif steering:
            amount = int(steering[:-1] or 1)
            if steering[-1] == "K":
                lines[row][column:] = [" "] * (columns - column)
            else:
                column = min(columns - 1, column + amount) if steering[-1] == "C" else max(0, column - amount)
        elif text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            if row == len(lines):
                lines.append([" "] * columns)
        else:
            lines[row][min(column, columns - 1)] = text
            column += 1
    return ["".join(line).rstrip() for line in lines]


@pytest.fixture(scope="module")
def received(tmp_path_factory):
    return run(tmp_path_factory.mktemp("progress"))[0]


@pytest.mark.slow
def test_it_counts_ops_and_steps_and_leaves_nothing(received):
    assert re.search(r"dtypetrace: [\d,]+ ops, 1 step, \d+ s\x1b8", received), received
    assert "dtypetrace: looking for causes" in received
    shown = screen(received)
    assert shown[:4] == [
        "a line of its own",
        "Epoch 1: a warning",
        "a warning",
        "loss 1.0",
    ], "as without dtypetrace, also behind a line that the script has only begun"
    assert shown[4] == "streams as they were: []"
    assert not any(" ops, " in line and " s" in line and "dtypetrace:" in line for line in shown), shown


@pytest.mark.slow
def test_what_goes_elsewhere_is_untouched(tmp_path):
    received, out = run(tmp_path, piped_out=True)
    assert out == "a line of its own\nEpoch 1: loss 1.0\n"
    assert "dtypetrace: " in received and screen(received)[:2] == ["a warning", "a warning"]


@pytest.mark.slow
def test_quiet_shows_nothing(tmp_path):
    assert "dtypetrace" not in run(tmp_path, "--quiet")[0]


LONG = """
import time
import torch
torch.zeros(2, dtype=torch.float16) @ torch.zeros(2, 2)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(3.1)
model(torch.ones(2, 4))
print("a line of its own")
"""


@pytest.mark.slow
def test_each_run_of_fix_says_how_far_it_is(tmp_path):
    received, diff = run(tmp_path, command="fix", script=LONG, piped_out=True)
    assert "+++ b/program.py" in diff and "proven: " in received
    began = received.index("run 1: "), received.index("run 2: ")
    for text in (received[began[0] : began[1]], received[began[1] :]):
        assert re.search(r"dtypetrace: [\d,]+ ops, [12] steps?, \d+ s\x1b8", text), received
    shown = screen(received)
    assert "a line of its own" in shown and not any(" ops, " in line for line in shown), shown


# ---------------------------------------------------------------- by itself


class Terminal:
    def __init__(self, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        subprocess.run(["stty", "cols", str(columns)], stdin=theirs, check=True)
        self.stream = open(theirs, "w")
        self.now = 0.0

    def read(self) -> str:
        """What was written since the last read: the kernel passes it on in its own time, but in order."""
        os.write(self.stream.fileno(), b"\0")
        received = b""
        while not received.endswith(b"\0"):
            received += os.read(self.ours, 4096)
        return received[:-1].decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self.ours)


@pytest.mark.parametrize(("columns", "seen"), [(100, True), (40, False)])
def test_it_waits_some_seconds_and_then_shows_one_text_a_second(columns, seen):
    terminal = Terminal(columns)
    shown = progress.Progress(terminal.stream, lambda: terminal.now)
    asked = []
    for terminal.now in (1.0, 2.9, 3.1, 3.5, 4.2):
        shown.watching(lambda: asked.append(terminal.now) or 1234, 1)
    text = terminal.read()
    assert asked == [3.1, 4.2], "ops are counted only where they are shown"
    assert re.findall(r"dtypetrace: 1,234 ops, 1 step, \d s", text) == (
        ["dtypetrace: 1,234 ops, 1 step, 3 s", "dtypetrace: 1,234 ops, 1 step, 4 s"] if seen else []
    )
    shown.clear()
    assert screen(text + terminal.read(), columns) == [""]
    terminal.close()


def test_only_a_terminal_that_understands_it_gets_one(monkeypatch):
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    assert progress.for_terminal(terminal.stream) is not None
    assert progress.for_terminal(terminal.stream, quiet=True) is None
    assert progress.for_terminal(io.StringIO()) is None and progress.for_terminal(None) is None
    monkeypatch.setenv("TERM", "dumb")
    assert progress.for_terminal(terminal.stream) is None
    terminal.close()
    assert progress.for_terminal(terminal.stream) is None
