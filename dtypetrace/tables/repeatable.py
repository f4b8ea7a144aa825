"""Which operators have no effect outside their results: only those are called a second time.

``repeatable.txt`` names them, one a line, without overload and without the underscore of in-place ones; what is not
named is unknown, and unknown is no. ``python -m tools.repeatable`` measures it: torch's own samples of every operator
are called twice, and neither the state of random numbers, nor files, nor any argument that the schema does not declare
as written may have changed, and both calls must give the same. Standard library only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("repeatable.txt")


def key(name: str) -> str:
    """The name in the table of an operator or function.

    >>> key("add_"), key("__iadd__"), key("_foreach_add_")
    ('add', 'iadd', '_foreach_add')
    """
    if name.startswith("__") and name.endswith("__"):
        return name[2:-2]
    return name.rstrip("_")


@cache
def names() -> frozenset[str]:
    """All keys; those of another library's operators begin with its namespace (``torchvision::roi_align``)."""
    lines = TABLE.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))
