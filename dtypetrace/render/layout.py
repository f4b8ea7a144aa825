"""Fits text into a number of columns, using only characters that a stream can print. Knows nothing about findings."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ..terminal import USUAL, seen

CUT = "..."
_WORDS = re.compile(r"(?:\[[\d, ]*\]|\S)+")  # a shape is one word


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters take two, combining ones none.

    >>> columns("naïve"), columns("漢字")
    (5, 4)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # rich takes a while to import

    return cell_len(text)


@dataclass(frozen=True)
class Display:
    """Where text is shown: the width in columns, and the encoding that the characters must fit."""

    width: int = USUAL
    encoding: str = "utf-8"

    def printable(self, text: str) -> str:
        """The text with tabs expanded, and with escapes for control characters and for what the stream cannot print.

        >>> Display(encoding="ascii").printable("é")
        '\\\\xe9'
        """
        return seen(text.expandtabs(4)).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def wrapped(self, head: str, text: str, later: str | None = None) -> list[str]:
        """The text after its head, over as many lines as it needs; later lines begin with ``later``, else with blanks.

        >>> Display(20).wrapped("= note: ", "x is float32 [2, 3]")
        ['= note: x is float32', '        [2, 3]']
        """
        later, room = " " * columns(head) if later is None else later, max(self.width - columns(head), 12)
        lines, current = [], ""
        for word in _WORDS.findall(self.printable(text)):
            if current and columns(current) + 1 + columns(word) > room:
                lines.append(current)
                current = ""
            if columns(word) > room:
                word = shortened(word, room)
            while columns(word) > room:
                lines.append(_head(word, room))
                word = word[len(lines[-1]) :]
            current = f"{current} {word}" if current else word
        lines.append(current)
        return [f"{later if number else head}{line}".rstrip() for number, line in enumerate(lines)]

    def clipped(self, text: str, begin: int, end: int, room: int) -> tuple[str, int, int]:
        """A line of code cut to fit the room, and the new character offsets of its span.

        Dots mark what was cut: first what follows the span, then what precedes it, last the middle of the span.

        >>> Display().clipped("total = first_value + second_value", 8, 19, 24)
        ('total = first_value +...', 8, 19)
        >>> Display().clipped("total = first_value + second_value", 22, 34, 18)
        ('... + second_value', 6, 18)
        """
        if columns(text) <= room:
            return text, begin, end
        if columns(text[begin:end]) > room - 2 * len(CUT):
            half = (room - 3 * len(CUT)) // 2
            span = _head(text[begin:end], half) + CUT + _head(text[begin:end][::-1], half)[::-1]
            text, end = text[:begin] + span + text[end:], begin + len(span)
        more = len(CUT) * (end < len(text))
        if columns(text[:end]) + more > room:
            left = _head(text[:end][::-1], room - more - len(CUT))
            text, begin, end = (
                CUT + left[::-1] + text[end:],
                begin - end + len(left) + len(CUT),
                len(left) + len(CUT),
            )
        if columns(text) > room:
            text = _head(text, room - len(CUT)) + CUT
        return text, begin, end


def _head(text: str, room: int) -> str:
    """As much of a text's beginning as fits."""
    taken = 0
    for n, character in enumerate(text):
        taken += columns(character)
        if taken > room:
            return text[:n]
    return text


def shortened(path: str, room: int) -> str:
    """A path (with text around it) without the first folders that do not fit.

    >>> shortened("diffusers/models/unets/unet_2d.py:871", 24)
    '.../unets/unet_2d.py:871'
    """
    before = path[: len(path) - len(path.lstrip("([{'\""))]
    parts = path.split(os.sep)
    for kept in range(1, len(parts)):
        shorter = before + os.sep.join((CUT, *parts[kept:]))
        if columns(shorter) <= room:
            return shorter
    return path


def middle_cut(text: str, longest: int) -> str:
    """A text of at most this many characters. Its middle is left out: the ends of paths and module names matter most.

    >>> middle_cut("model.layers.attention.weight", 16)
    'mode…tion.weight'
    """
    if len(text) <= longest:
        return text
    end = longest * 2 // 3
    return text[: longest - end - 1] + "…" + text[-end:]
