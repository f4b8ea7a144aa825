"""The one place where a fix is made: what to change, why, and its edits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..graph import NOWHERE
from ..records import Edit, Fix, Frame, Place
from ..source.optimizers import ByHand

TESTED = ("text", "dtype rules: nothing else is refused")
"""What was done to check edits by the text and by a replay of the run."""
Edits = Edit | Iterable[Edit] | None
"""Edits as they are found: one that may be missing, or several."""


def advise(
    place: Place,
    change: str,
    reason: str = "",
    *,
    edits: Edits = None,
    kind: str = "dtype",
    others: Sequence[str] = (),
    lines: Sequence[ByHand] = (),
    named: Place = NOWHERE,
    safe: bool | None = None,
    tested: bool = False,
) -> Fix:
    """A fix. ``others``: what else may repair it. ``named``: the line that the words themselves name. ``safe``: if not
    the same as having edits. ``tested``: the edits are what :func:`checks.sound` let pass."""
    found = (edits,) if isinstance(edits, Edit) else tuple(edits or ())
    said = [line.edit for line in lines]
    if lines and lines[0].line:
        named = Place((Frame(lines[0].file, lines[0].line, "", True, 1),))
    return Fix(
        kind,
        place,
        found,
        bool(found) if safe is None else safe,
        f"{change}: {reason}" if reason else change,
        tuple(others),
        TESTED if tested and found else (),
        tuple(line.text for line in lines),
        change if reason else "",
        named,
        tuple(edit for edit in said if edit is not None) if None not in said else (),
    )


def without_diff(fix: Fix, objection: str) -> Fix:
    """The same advice in words, where something objects to its edits."""
    why = f"{fix.why}. No diff is shown, because with this change alone {objection}"
    return replace(fix, edits=(), safe=False, why=why, change=fix.instruction)
