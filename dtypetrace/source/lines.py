"""Lines of a program's text, as Python counts them.

``str.splitlines`` also cuts at form feeds, vertical tabs, file separators, NEL and the line separators of Unicode. In
Python's grammar, in ``linecache`` and in ``git diff`` those are characters of a line like any other.
"""

from __future__ import annotations

import re

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def lines_of(text: str) -> list[str]:
    r"""The lines with their ends; a ``\r\n`` stays one.

    >>> lines_of("a\x0cb\nc")
    ['a\x0cb\n', 'c']
    """
    return _LINE.findall(text)


def universal(text: str) -> str:
    r"""The text with every line end as ``\n``, as Python reads files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
