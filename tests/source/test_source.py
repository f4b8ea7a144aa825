"""Reading the program's text: the expression that a frame was running, found by positions that count characters."""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap

import pytest

from dtypetrace.capture.stacks import Places
from dtypetrace.records import Frame
from dtypetrace.records.text import LIVE
from dtypetrace.source import expressions

UNKNOWN = Frame("<nowhere>", 1, "f", True, 1, 1, 5)


def frame_of(text: str, tmp_path, name: str = "program.py") -> Frame:
    """The frame of a program at the moment when it calls ``here()``, as Places resolves it."""
    text = textwrap.dedent(text).lstrip("\n")
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    linecache.checkcache(str(file))
    places, found = Places(), []

    def here(*_args, **_options):
        found.append(places.here(sys._getframe(1)))
        return Anything()

    class Anything:
        def __getattr__(self, _name):
            return self

        def __call__(self, *args, **options):
            return self

        def __matmul__(self, other):
            found.append(places.here(sys._getframe(1)))

    exec(compile(text, str(file), "exec"), {"here": here, "thing": Anything()})
    return places.resolve(places.files(lambda _file: True), LIVE)[found[-1]].stack[0]


def call(text: str, tmp_path) -> str:
    found = expressions.call_at(LIVE, frame_of(text, tmp_path))
    return ast.unparse(found) if found else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("here(1)", "here(1)"),
        ("x = [1] and 1 < 2 and here(2)", "here(2)"),
        ("x = [here(3)]", "here(3)"),
        ("x = str(here(4)) and str(5)", "here(4)"),
        ("(thing\n .a()\n .b(here(6))\n)", "here(6)"),
        ("x = (here(7)\n     .a(1)\n     .b(2))", "here(7)"),
        ("é = 'ü'; here('ä', 8)", "here('ä', 8)"),
        ("here(\n    9,\n    b=10,\n)", "here(9, b=10)"),
        ("f = lambda: here(11)\nf()", "here(11)"),
        ("x = f'{here(12)}'", "here(12)"),
        ("\tx = 1\n\there(13)".expandtabs(0), "here(13)"),
        ("if True:\n\there(14)", "here(14)"),
        ("here(15), here(16)", "here(16)"),
    ],
)
def test_the_call_that_a_frame_is_in(text, expected, tmp_path):
    assert call(text, tmp_path) == expected


def test_an_operator_is_an_expression_but_no_call(tmp_path):
    frame = frame_of("x = thing @ thing.a(1)", tmp_path)
    assert ast.unparse(expressions.expression_at(LIVE, frame)) == "thing @ thing.a(1)"
    assert expressions.call_at(LIVE, frame) is None
    assert expressions.callee(LIVE, frame) is None


def test_a_loop_is_not_the_last_call_of_its_body(tmp_path):
    """The instruction that fetches a loop's next item spans the whole loop."""
    file = tmp_path / "loop.py"
    file.write_text("for x in things:\n    a(x)\n    here(x)\n")
    assert expressions.expression_at(LIVE, Frame(str(file), 1, "<module>", True, 1, 3, 12)) is None


def test_the_last_call_of_a_chain_over_several_lines(tmp_path):
    """Where a chain's call is refused, its position begins at the attribute: it is found by its end."""
    text = "x = (thing\n     .a(1)\n     .here(2))\n"
    tree = ast.parse(text)
    whole = tree.body[0].value
    file = tmp_path / "chain.py"
    file.write_text(text)
    # as CPython places CALL for `.here(2)`: from the attribute's name to the closing parenthesis
    frame = Frame(str(file), 3, "<module>", True, 7, 3, 14)
    assert ast.unparse(expressions.call_at(LIVE, frame)) == ast.unparse(whole)


@pytest.mark.parametrize(
    "frame",
    [
        UNKNOWN,
        Frame("<nowhere>", 1, "f", True),
        Frame(__file__, 1, "f", True),
        Frame(__file__, 10**6, "f", True, 1, 10**6, 3),
    ],
)
def test_where_there_is_no_text_nothing_is_said(frame):
    assert expressions.expression_at(LIVE, frame) is None
    assert expressions.call_at(LIVE, frame) is None
    assert expressions.callee(LIVE, frame) is None
    assert expressions.all_enclosing(LIVE, frame, "autocast") == []


def test_a_file_that_does_not_parse(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("def (:\n")
    assert LIVE.parsed(str(file)) is None
    file = tmp_path / "null.py"
    file.write_bytes(b"x = 1\0\n")
    assert LIVE.parsed(str(file)) is None


def test_a_notebook_cell(tmp_path):
    lines = ["x = 1\n", "net(x)\n"]
    linecache.cache["<ipython-input-7>"] = (sum(map(len, lines)), None, lines, "<ipython-input-7>")
    try:
        frame = Frame("<ipython-input-7>", 2, "<module>", True, 1, 2, 7)
        assert expressions.callee(LIVE, frame) == "net"
    finally:
        del linecache.cache["<ipython-input-7>"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a", "a"), ("a.b.c", "a.b.c"), ("a[0].b", "a[0].b"), ("a['k']", "a['k']"), ("a[i]", None), ("a().b", None), ("1", None),
        ("a[1:2]", None), ("(a)", "a"), ("a + b", None),
    ],
)  # fmt: skip
def test_dotted_names(text, name):
    assert expressions.dotted(ast.parse(text, mode="eval").body) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("here(1)", "here"),
        ("thing(1, here())", "here"),
        ("thing.unet = here\nthing.unet(1)", "thing.unet"),
        ("[here][0](1)", None),
    ],
)
def test_the_callee_is_what_runs_not_what_waits(text, name, tmp_path):
    assert expressions.callee(LIVE, frame_of(text, tmp_path)) == name


def test_positions_count_characters_not_bytes(tmp_path):
    file = tmp_path / "umlaut.py"
    file.write_text("x = 'äöü', f(1)\n", encoding="utf-8")
    text = LIVE.parsed(str(file))
    node = next(n for n in ast.walk(text.tree) if isinstance(n, ast.Call))
    assert text.start(node) == (1, 12)
    assert text.end(node) == (1, 16)
    assert text.contains(node, 1, 12) and text.contains(node, 1, 14)
    assert not text.contains(node, 1, 11) and not text.contains(node, 2, 12)


def test_the_function_around_an_expression(tmp_path):
    file = tmp_path / "nested.py"
    file.write_text(
        "a = f(0)\ndef outer():\n    def inner():\n        return f(1)\n    return lambda: f(2)\nasync def later():\n    f(3)\n"
    )
    text = LIVE.parsed(str(file))
    calls = {
        n.args[0].value: expressions.function_around(text, n) for n in ast.walk(text.tree) if isinstance(n, ast.Call)
    }
    assert calls[0] is text.tree
    assert calls[1].name == "inner"
    assert isinstance(calls[2], ast.Lambda)
    assert calls[3].name == "later"


def test_the_innermost_with_that_mentions_a_word(tmp_path):
    file = tmp_path / "regions.py"
    file.write_text(
        "with torch.autocast('cpu'):\n"
        "    a = 1\n"
        "    with open('x') as f, torch.autocast('cuda', dtype=torch.float16):\n"
        "        b = 2\n"
        "    with torch.no_grad():\n"
        "        c = 3\n"
        "d = 4\n"
    )
    lines = {1: 1, 2: 1, 4: 3, 6: 1, 7: None}
    for line, expected in lines.items():
        found = expressions.all_enclosing(LIVE, Frame(str(file), line, "<module>", True, 1, line, 2), "autocast")
        assert next((statement.lineno for statement, _ in found), None) == expected, line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1e9", "-1000000000.0"),
        ("3", "3"),
        ("1j", "1j"),
        ("-65504.0", "-65504.0"),
        ("x", None),
        ("'3'", None),
        ("-x", None),
    ],
)
def test_numbers_as_literals(text, value):
    assert expressions.number(ast.parse(text, mode="eval").body) == value


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("here(x := 1, -1e9)", -1e9, "-1e9"),
        ("here(1_000_000.0)", 1e6, "1_000_000.0"),
        ("here(float('-inf'))", float("-inf"), None),
        ("here(-1e9, -1.0e9)", -1e9, "-1e9"),
        ("here('ä', 7e4)", 7e4, "7e4"),
    ],
)
def test_a_number_as_the_program_writes_it(text, value, written, tmp_path):
    assert expressions.written(LIVE, frame_of(text, tmp_path), repr(value)) == written


def test_a_name_that_no_file_can_have_has_no_text():
    assert LIVE.parsed("no\0file.py") is None
