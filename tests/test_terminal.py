"""No name of a program or of a saved trace controls the terminal: controls, C1, separators are written as escapes."""

import io
import json
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace import __main__ as main
from dtypetrace import report, terminal
from dtypetrace.records import Recording
from dtypetrace.terminal import seen, seen_lines

STEERING = "\x1b[2J\x9b31m\u2028\u2029\u202e\x07\ud800"


WIDTHS = {"1": 60, "2": 60, "0": 120, "-5": 120, "": 120, "²": 120, "72": 72, "9" * 9: 1000, "9" * 5000: 1000}


@pytest.mark.parametrize("asked", WIDTHS)
def test_a_width_from_outside_is_one_that_text_fits_into(asked, monkeypatch, capsys):
    """The help and a report, drawn and plain: rich, for one, takes no width of zero and no ``²``."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, asked)
    assert terminal.width(io.StringIO()) == WIDTHS[asked]
    with pytest.raises(SystemExit):
        main.parser(("run",)).parse_args(["run", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= WIDTHS[asked]
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        stream = io.StringIO()
        stream.isatty = lambda: True
        monkeypatch.setenv(name, "1")
        report.console(SimpleNamespace(recording=Recording(), findings=()), file=stream)
        assert "no torch operation ran" in stream.getvalue()


def steers(text):
    return sorted(
        {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c == "\u202e"}
    )


def test_control_characters_are_escaped_and_the_rest_is_kept():
    assert seen("plain") == "plain" and seen("naïve 漢字 👩‍🚀") == "naïve 漢字 👩‍🚀"
    assert not steers(seen(STEERING + "\n\t"))
    assert seen_lines("a\nb\x1b") == "a\nb\\x1b"


@pytest.fixture(scope="module")
def refused():
    """A refusal in a module whose name has control characters, as an exception with its notes, and its trace."""
    model = nn.Sequential()
    model.add_module(f"head{STEERING}", nn.Linear(4, 4).half())
    with pytest.raises(RuntimeError) as caught, dtypetrace.trace(model) as t:
        model(torch.ones(2, 4).half())
        model(torch.ones(2, 4))
    return t, caught.value


def test_the_notes_of_an_exception(refused):
    trace, error = refused
    assert len(error.__notes__) == 3 and not steers("".join(error.__notes__))
    assert "head\\x1b[2J" in repr(trace)


def test_the_text_of_each_view(refused, tmp_path):
    trace, _ = refused
    trace.save(tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    fields = data["fields"]
    for frame in data["frames"]:  # paths and functions of a stranger's machine
        frame[fields["Frame"].index("file")] += STEERING
        frame[fields["Frame"].index("function")] += STEERING
    for finding in data["findings"]:
        finding[fields["Finding"].index("title")] += STEERING
        finding[fields["Finding"].index("exception")][fields["Raised"].index("message")] += STEERING
    for op in data["recording"][fields["Recording"].index("ops")]:
        op[fields["Op"].index("op")] += STEERING
    (tmp_path / "marked.json").write_text(json.dumps(data))
    loaded = dtypetrace.load(tmp_path / "marked.json")
    shown = io.StringIO()
    report.console(loaded, file=shown, program="train.py")
    texts = {
        "console": shown.getvalue(),
        "repr": repr(loaded),
        "why": repr(loaded.why(loaded.recording.parameters[0].name)),
        "operators": report.operators_text(loaded.recording),
    }
    assert {name: steers(text) for name, text in texts.items()} == dict.fromkeys(texts, [])
    assert all("\\x1b" in text for text in texts.values())


def test_a_name_that_was_not_watched_is_reported_without_them(refused):
    trace, _ = refused
    with pytest.raises(ValueError) as caught:
        trace.why("head")
    assert not steers(str(caught.value))


def test_errors_of_the_command_line(tmp_path):
    missing = tmp_path / "no\x1b[31m\u2028such.json"
    damaged = tmp_path / "bad\x1b[31m\u2028.json"
    damaged.write_text('{"dtypetrace": "trace", "format": "\\u001b[31m\\u2028"}')
    for path in (missing, damaged):
        done = subprocess.run(
            [sys.executable, "-m", "dtypetrace", "show", str(path)], capture_output=True, text=True, encoding="utf-8"
        )
        assert done.returncode == 2 and done.stderr.startswith("dtypetrace: error: ")
        assert not steers(done.stderr) and done.stderr.count("\n") == 1
