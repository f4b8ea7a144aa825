"""Functions that change torch's default dtype and end without setting it back. Needs no torch."""

from __future__ import annotations

import textwrap

import pytest

from dtypetrace.records import Frame, Place
from dtypetrace.records.text import ProgramText
from dtypetrace.source import defaults

SET = "    torch.set_default_dtype(torch.float64)\n"
BACK = "torch.set_default_dtype(torch.float32)"


def with_body(body: str) -> tuple[ProgramText, Place]:
    """A function with this body, whose first line sets the default, and the place of that."""
    text = "import torch\ndef careful(x):\n" + SET + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"
    frame = Frame("p.py", 3, "careful", True, 5, 3, 5 + len(SET.strip()))
    return ProgramText({"p.py": text.splitlines(keepends=True)}), Place((frame,))


def leak(body: str) -> defaults.Leak | None:
    return defaults.leak(*with_body(body), "float32")


@pytest.mark.parametrize(
    ("body", "line", "after"),
    [
        (f"if x:\n    return x\n{BACK}\nreturn x", 5, [f"{BACK}\n        return"]),
        ("print(x)", 4, [f")\n    {BACK}"]),
        ("if x:\n    return x", 5, [f"{BACK}\n        return", f"x\n    {BACK}"]),
    ],
)
def test_each_end_that_leaves_the_default_is_repaired(body, line, after):
    found = leak(body)
    assert found is not None and (found.function, found.line) == ("careful", line)
    assert [edit.after for edit in found.edits] == after


@pytest.mark.parametrize(
    "body",
    [
        f"{BACK}\nreturn x",
        f"try:\n    return x\nfinally:\n    {BACK}",
        "return torch.ones(3)",  # what it returns may need the default
        "if x: return x",
    ],
)
def test_what_is_set_back_or_unclear_is_left_alone(body):
    assert leak(body) is None


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (f"y = x()\n\nz = y\n{BACK}\nreturn z", f"try:\n    y = x()\n\n    z = y\nfinally:\n    {BACK}\nreturn z"),
        (f'y = """a\nb"""\n{BACK}', None),  # a new indent would change the text
        (f"x(); y = 1\n{BACK}", None),
    ],
)
def test_the_line_that_an_error_skips_always_runs(body, after):
    text, place = with_body(body)
    found = defaults.skipped(text, place, "float32")
    assert found is not None and found.function == "careful" and text.line("p.py", found.line).strip() == BACK
    if after is None:
        assert found.edits == ()
    else:
        (edit,) = found.edits
        changed = "".join(text.lines("p.py")).replace(edit.before, edit.after)
        assert changed.endswith(SET + textwrap.indent(after, "    ") + "\n")


@pytest.mark.parametrize(
    "body",
    [
        f"try:\n    y = x()\nfinally:\n    {BACK}",  # nothing skips it
        f"yield x\n{BACK}",  # it waits, it has not ended
        f"if x:\n    return x\n{BACK}",  # a return skips it
        f"x()\n{BACK.replace('float32', 'half')}",  # another dtype than the one that is needed
        "return x",
    ],
)
def test_what_no_error_skips(body):
    assert defaults.skipped(*with_body(body), "float32") is None
