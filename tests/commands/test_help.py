"""The help of every command: no wider than the terminal, and whole."""

from __future__ import annotations

import pytest

from dtypetrace import __main__ as main


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("name", main.COMMANDS)
def test_it_is_no_wider_than_the_terminal(name, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main.parser((name,)).parse_args([name, "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: dtypetrace {name}") and "options:" in shown
    wide = [line for line in shown.splitlines() if len(line) > columns and len(line.split()) > 1 and line[0] != " "]
    assert wide == []


def test_an_option_in_the_usage_stays_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "70")
    with pytest.raises(SystemExit):
        main.parser(("contract",)).parse_args(["contract", "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert len(usage.splitlines()) > 1
    assert all(line.count("[") == line.count("]") for line in usage.splitlines()), usage


OLD = {
    "--trace-steps 2": ("first", 2),
    "--no-numerics": ("precision", "off"),
    "--reference": ("precision", "reference"),
    "--operators": ("operators", True),
}


@pytest.mark.parametrize("words", OLD)
def test_a_spelling_of_the_version_before_works_and_says_the_new_one(words, capsys):
    name, value = OLD[words]
    now = main.parser(("run",)).parse_args(["run", "train.py"])
    options = main.parser(("run",)).parse_args(["run", *words.split(), "train.py"])
    assert getattr(options, name) == value != getattr(now, name)
    said = capsys.readouterr().err
    assert said.startswith(f"dtypetrace: {words.split()[0]} is now ") and said.count("\n") == 1


def test_run_has_no_more_options_than_a_page_holds(capsys):
    with pytest.raises(SystemExit):
        main.parser(("run",)).parse_args(["run", "--help"])
    shown = capsys.readouterr().out
    assert [part for part in ("what to watch:", "what to write:", "when to stop") if part not in shown] == []
    assert sum(line.startswith(("  --", "  -q")) for line in shown.splitlines()) <= 13
