"""A diff on a terminal is coloured and harmless; anywhere else it is the diff, byte for byte."""

from __future__ import annotations

import io

import pytest

from dtypetrace.render import diffs

DIFF = (
    "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n \tkept\n-x = y  # \x1b[2J\n+x = y.half()\n\\ No newline at end of file\n"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_file_gets_it_unchanged():
    assert diffs.shown(DIFF, io.StringIO()) == DIFF


def test_a_terminal_gets_colours_and_no_control_characters_of_the_source():
    lines = diffs.shown(DIFF, Terminal()).split("\n")
    assert lines[0] == "\x1b[1m--- a/x.py\x1b[0m" and lines[2].startswith("\x1b[36m@@")
    assert lines[3] == " \tkept"
    assert lines[4] == "\x1b[31m-x = y  # \\x1b[2J\x1b[0m"
    assert lines[5] == "\x1b[32m+x = y.half()\x1b[0m"
    assert lines[7:] == [""]


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_turned_off(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert "\x1b[3" not in diffs.shown(DIFF, Terminal())
