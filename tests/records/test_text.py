"""Lines are counted as Python counts them: nothing but line feeds and carriage returns ends one."""

from __future__ import annotations

import linecache
import warnings

import programs
import pytest

from dtypetrace.records.text import ProgramText, lines_of, universal

ODD = {"form feed": "\x0c", "vertical tab": "\x0b", "file separator": "\x1c", "NEL": "\x85", "line separator": "\u2028"}


@pytest.mark.parametrize("character", ODD.values(), ids=ODD)
def test_lines_are_pythons(character, tmp_path):
    text = f"a = 'x{character}y'\nb = 1"
    file = tmp_path / "text.py"
    file.write_text(text, encoding="utf-8")
    assert lines_of(text) == [f"a = 'x{character}y'\n", "b = 1"]
    assert lines_of(text + "\n") == linecache.getlines(str(file))


def test_every_line_end_is_one():
    assert lines_of("") == []
    assert lines_of("a\r\nb\n\nc") == ["a\r\n", "b\n", "\n", "c"]
    assert lines_of(universal("a\r\nb\rc\n")) == ["a\n", "b\n", "c\n"]


PLACES = [(name, "in a text") for name in ODD] + [(name, "in the culprit's line") for name in ODD]


@pytest.mark.parametrize("name, where", [("form feed", "on a line of its own"), *PLACES])
def test_a_report_finds_its_lines(name, where, tmp_path):
    character = ODD[name]
    start = {"on a line of its own": f"{character}\n", "in a text": f"name = 'a{character}b'\n"}.get(where, "")
    call = f"m(x, *'{character}'[1:])" if where == "in the culprit's line" else "m(x)"
    program = programs.run(
        tmp_path,
        f"import torch\n{start}m = torch.nn.Linear(4, 4).half()\nx = torch.ones(2, 4)\n"
        f"try:\n    {call}\nexcept RuntimeError:\n    pass\n",
    )
    (finding,) = program.findings
    assert finding.fix is not None and finding.fix.edits[0].after == "torch.ones(2, 4, dtype=torch.float16)"
    assert "|     x = torch.ones(2, 4)" in repr(program.trace) or "| x = torch.ones(2, 4)" in repr(program.trace)


@pytest.mark.parametrize("odd", ["0x1for x in ()", "'\\d'", "1 is 1"])
def test_no_warning_of_the_programs_text_is_given_twice(odd):
    """Python warns when it compiles a text; who reads it after that has nothing to add, and silences nobody else for it."""
    filters = list(warnings.filters)
    text = ProgramText({"a.py": [f"x = {odd}\n"]})
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        text.parsed("a.py")
        warnings.warn("still heard")
    assert [str(w.message) for w in reported] == ["still heard"]
    assert warnings.filters == filters


def test_text_that_is_nested_too_deep_is_not_parsed():
    assert ProgramText({"a.py": ["x = " + "-" * 9000 + "1\n"]}).parsed("a.py") is None
