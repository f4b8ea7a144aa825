"""The guide and the pages for one subject say what is so: each page's commands are run in order, in one folder, and print
what stands below them.

`DTYPETRACE_REWRITE=1 pytest tests/docs/test_guide.py` writes what they print into the pages anew.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide.md"
PAGES = [
    GUIDE,
    *(ROOT / "docs" / f"{name}.md" for name in ("diff", "formats", "pytest", "ranks", "receipt", "start", "trainers")),
    ROOT / "skills" / "dtypetrace" / "SKILL.md",
]
BLOCK = re.compile(r"(^```(\w*)\n)(.*?)(^```$)", re.S | re.M)
SHIMS = {"python": "", "dtypetrace": "-m dtypetrace", "torchrun": "-m torch.distributed.run", "pytest": "-m pytest"}
if not any(plugin.name == "dtypetrace" for plugin in importlib.metadata.entry_points(group="pytest11")):
    SHIMS["pytest"] += " -p dtypetrace.integrations.pytest"  # this checkout is not installed


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_command_prints_what_the_page_says(page, tmp_path, monkeypatch):
    pytest.importorskip("IPython")
    for name, arguments in SHIMS.items():
        shim = tmp_path / "bin" / name
        shim.parent.mkdir(exist_ok=True)
        started = "start" if name != "torchrun" else "ranks"  # the page whose processes are started anew
        python = [sys.executable] if page.stem == started else warm.command()
        shim.write_text(f'#!/bin/sh\nexec {shlex.join(python)} {arguments} "$@"\n')
        shim.chmod(0o755)
    for name, value in dict(
        PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", PYTHONPATH=str(ROOT), COLUMNS="96", NO_COLOR="1", OMP_NUM_THREADS="1",
        PYTHONIOENCODING="utf-8", GITHUB_WORKSPACE="",
    ).items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("CI", "BUILD_NUMBER"):  # pytest shows whole messages in its summary under CI
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    text = page.read_text("utf-8")
    found = BLOCK.sub(lambda m: m[1] + printed(m[2], m[3], folder) + m[4], text)
    if os.environ.get("DTYPETRACE_REWRITE"):
        page.write_text(found, "utf-8")
    assert page.read_text("utf-8") == found


def printed(language: str, block: str, folder: Path) -> str:
    """The block with what its commands print now; a program is written to the file that its first line names."""
    if language == "python" and (named := re.match(r"# (\w+\.py)\n", block)):
        (folder / named[1]).write_text(block, "utf-8")
    if block.startswith("$ "):
        return "".join(f"$ {command}\n{shell(command, folder)}" for command in re.findall(r"^\$ (.+)$", block, re.M))
    if block.startswith("In [1]: "):
        return cells(block, folder)
    return block


def shell(command: str, folder: Path) -> str:
    ended = subprocess.run(
        command, shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=240
    )
    return normalised(ended.stdout)


def normalised(text: str) -> str:
    """Without the frames of a traceback, which lead through torch's files."""
    return re.sub(r"(?<=^Traceback \(most recent call last\):\n)(?:  .*\n)+", "  ...\n", text, flags=re.M)


RUN_CELLS = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.history_manager.enabled = False
for cell in sys.stdin.read().split("\\0"):
    shell.run_cell(cell, store_history=True)
"""


def cells(block: str, folder: Path) -> str:
    """The cells as they stand, and below them what they print; only the last one prints anything."""
    typed = re.findall(r"^In \[\d+\]: .*\n(?:   \.\.\.: .*\n)*", block, re.M)
    codes = [re.sub(r"^(?:In \[\d+\]|   \.\.\.): ", "", cell, flags=re.M) for cell in typed]
    ended = subprocess.run(
        [sys.executable, "-c", RUN_CELLS], input="\0".join(codes), cwd=folder, capture_output=True, encoding="utf-8", timeout=240, env=dict(os.environ, IPYTHONDIR=str(folder))
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return "\n".join(typed) + ended.stdout


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda p: p.stem)
def test_a_page_runs_commands(page):
    assert re.search(r"^\$ ", page.read_text("utf-8"), re.M)


def test_the_guide_is_run_at_all():
    commands = re.findall(r"^\$ (\w+)", GUIDE.read_text("utf-8"), re.M)
    assert commands.count("dtypetrace") >= 8
    shown = [block for _, language, block, _ in BLOCK.findall(GUIDE.read_text("utf-8")) if not language]
    assert all(block.startswith(("$ ", "In [1]: ", "pip ")) for block in shown)
