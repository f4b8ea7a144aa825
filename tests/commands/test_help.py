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
        main.parser(("show",)).parse_args(["show", "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert len(usage.splitlines()) > 1
    assert all(line.count("[") == line.count("]") for line in usage.splitlines()), usage
