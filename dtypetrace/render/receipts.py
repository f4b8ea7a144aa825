"""The receipt as a table: each part of the run with its dtype, its bytes, what was asked for, and the line behind a
difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..records import ReceiptRow
from ..rules.run_facts import quantity
from ..terminal import seen
from . import wording

_SIZE = "size or share"
TITLES = ("part", "what", "dtype", _SIZE, "asked for", "decided at")
_WIDEST = 40
_SHARES = ("compute",)
"""Parts whose size is a share of their operations: bytes of results that are gone say little."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row as it is shown."""

    cells: tuple[str, ...]
    dtype: str
    differs: bool


def lines(rows: Sequence[ReceiptRow]) -> Iterator[Line]:
    """The rows in words; a part is named once."""
    above = ""
    for row in rows:
        asked = f"{row.asked} ({row.by})" if row.by else row.asked
        what = row.what if len(row.what) <= _WIDEST else row.what[: _WIDEST - 1] + "…"
        where = _where(row) if row.differs or row.share < 1 or row.part.startswith("checkpoint") else ""
        size = quantity(row.bytes, "B") if row.bytes else ""
        if row.part in _SHARES and row.dtype:
            size = f"{row.share:.0%}" if row.share >= 0.005 else "<1%"
        yield Line(("" if row.part == above else row.part, what, row.dtype, size, asked, where), row.dtype, row.differs)
        above = row.part


def _where(row: ReceiptRow) -> str:
    return wording.at(row.cause.place) if row.cause is not None and row.cause.place.stack else ""


def text(rows: Sequence[ReceiptRow]) -> str:
    """The table for the console; rows that differ from what was asked for begin with ``≠``."""
    if not rows:
        return "receipt: nothing was held and nothing computed"
    shown = [(" ", TITLES), *(("≠" if line.differs else " ", line.cells) for line in lines(rows))]
    kept = [n for n in range(len(TITLES)) if any(cells[n] for _, cells in shown[1:])]
    widths = [max(len(cells[n]) for _, cells in shown) for n in range(len(TITLES))]
    table = (
        f"{mark} " + "  ".join(c[n].rjust(widths[n]) if TITLES[n] == _SIZE else c[n].ljust(widths[n]) for n in kept)
        for mark, c in shown
    )
    return "\n".join(seen(line.rstrip()) for line in table)
