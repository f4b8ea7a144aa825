"""Text is fitted into columns: nothing is wider than the page, and spans stay with what they mark."""

from __future__ import annotations

import random

import pytest

from dtypetrace.render.layout import Display, columns, shortened

CHARACTERS = "abc (/漢\u0301"


def texts(seed: int):
    """Random lines with wide and combining characters, each with a span."""
    chance = random.Random(seed)
    for _ in range(400):
        text = "".join(chance.choice(CHARACTERS) for _ in range(chance.randint(1, 200)))
        begin = chance.randrange(len(text))
        yield text, begin, chance.randint(begin + 1, len(text)), chance.randint(30, 120)


@pytest.mark.parametrize("seed", range(3))
def test_a_clipped_line_fits_and_keeps_its_span(seed):
    for text, begin, end, room in texts(seed):
        shown, at, until = Display().clipped(text, begin, end, room)
        assert columns(shown) <= room
        assert 0 <= at < until <= len(shown)
        if columns(text) <= room:
            assert (shown, at, until) == (text, begin, end)
        elif columns(text[begin:end]) <= room - 6:
            assert shown[at:until] == text[begin:end]
        else:
            head, dots, tail = shown[at:until].partition("...")
            assert dots and text[begin:end].startswith(head) and text[begin:end].endswith(tail)


@pytest.mark.parametrize("seed", range(3))
def test_wrapped_text_fits_and_loses_nothing(seed):
    for text, _, _, width in texts(seed):
        text = text.replace("/", "a")  # a path may be shortened
        lines = Display(width).wrapped(" = note: ", text)
        assert max(map(columns, lines)) <= width
        assert "".join("".join(lines).split()) == "=note:" + "".join(text.split())


def test_a_shape_is_not_broken():
    for width in range(20, 40):
        assert any(
            "[1, 2048, 64]" in line
            for line in Display(width).wrapped("", "float32 hidden_states [1, 2048, 64] meets float16")
        )


@pytest.mark.parametrize(
    ("path", "room", "shown"),
    [
        ("a/b/c.py:12", 20, ".../b/c.py:12"),
        ("(/a/long/folder/c.py:1)", 16, "(.../c.py:1)"),
        ("a/much_too_long_a_name.py", 10, "a/much_too_long_a_name.py"),
        ("nofolder.py", 4, "nofolder.py"),
    ],
)
def test_a_path_loses_its_first_folders(path, room, shown):
    assert shortened(path, room) == shown


def test_what_cannot_be_printed_becomes_an_escape():
    assert Display().printable("\ta\x1b[0m\u202eb\udcff") == "    a\\x1b[0m\\u202eb\\udcff"
    assert Display(encoding="latin-1").printable("é☃") == "é\\u2603"
