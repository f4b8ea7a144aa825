"""Text made safe for a terminal: control characters are written as escapes, so that they are seen and have no effect.

Names of modules, paths and messages come from programs, and a saved trace may come from a stranger. Standard library
only.
"""

from __future__ import annotations

import unicodedata

_STEERING = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Categories of Unicode: C0 and C1 controls, halves of surrogate pairs, line and paragraph separators."""
_REORDERING = frozenset((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0xFEFF))


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
