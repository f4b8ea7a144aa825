"""What reaches a terminal. Text is made safe for it: control characters are written as escapes, so that they are seen
and have no effect. Warnings of what dtypetrace does itself do not reach it. Its width is one that text fits into.

Names of modules, paths and messages come from programs, and a saved trace may come from a stranger. Standard library
only.
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STEERING = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Categories of Unicode: C0 and C1 controls, halves of surrogate pairs, line and paragraph separators."""
_REORDERING = frozenset((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0xFEFF))

NARROWEST, USUAL, WIDEST = 60, 120, 1000
"""Widths in columns. A smaller or larger number from outside is replaced by the nearest of the outer two."""


def width(stream: Any) -> int:
    """How many columns wide text for a stream is: what COLUMNS says, else what its terminal has."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and asked.strip("0"):
        return min(max(int(asked[:9]), NARROWEST), WIDEST)
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):  # a pipe, a closed stream, none at all
        found = 0
    return min(max(found, NARROWEST), WIDEST) if found else USUAL


def seen(text: str) -> str:
    r"""The text on one line, with every character visible.

    >>> seen("net.\x1b[31mred\u2028")
    'net.\\x1b[31mred\\u2028'
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join(c.encode("unicode_escape").decode() if _steers(c) else c for c in text)


def seen_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(seen, text.split("\n")))


def _steers(character: str) -> bool:
    return unicodedata.category(character) in _STEERING or ord(character) in _REORDERING


_WARNINGS: Any = warnings
"""Its filters are not in its type stubs."""


@contextmanager
def unwarned() -> Iterator[None]:
    """A block whose warnings are not shown. catch_warnings would do more than silence them: it makes every module
    forget which of its warnings were shown already."""
    silent, filters = ("ignore", None, Warning, None, 0), _WARNINGS.filters
    filters.insert(0, silent)
    try:
        yield
    finally:
        filters.remove(silent)
