"""Small parts of English sentences."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """Several names in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"]), listed([])
    ('a', 'a and b', 'a, b and c', '')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
