"""What optimizer steps did to the weights of a patched program, compared with the same steps in higher precision."""

from __future__ import annotations

from statistics import median

from ..records import Compared, Recording
from ..rules.lost_steps import lost_steps
from ..tables.dtypes import HALF

COMPARED = 4
"""Optimizer steps that are compared: in the first one a LoRA's down matrix rightly gets no gradient, and what is lost
shows in the next."""
_KEPT = 0.25
"""A step that arrives but for this share is kept: less than that is not told from what is lost without a patch."""


def lost_since(patched: Recording, own: Recording) -> dict[str, str]:
    """What the steps of the patched program lose and those of the program as it is keep, by the weight's name.

    A step of the program's own may not have been compared. Then it is kept in a program without 16 bits, and for a
    weight that the patch narrows; for another weight nothing is known, and the patch is not blamed.
    """
    updates = {c.name: c for c in own.compared if c.what == "update" and c.steps}
    lost = lost_steps(own)
    kept = {name for name, c in updates.items() if name not in lost and _arrives(c)}
    narrow = {p.name for p in own.parameters if p.dtype in HALF} | {u.name for u in own.updates if u.dtype in HALF}
    narrowed = {c.name for c in patched.compared if c.dtype in HALF} - narrow
    wide = not narrow and not _in_16_bits(own)
    lately = lost_steps(patched).items()
    return {n: why for n, why in lately if n in kept or n not in updates and (wide or n in narrowed)}


def _in_16_bits(recording: Recording) -> bool:
    return any(HALF.intersection(op.outputs) for op in recording.ops)


def _arrives(c: Compared) -> bool:
    return not c.spoiled and abs(c.arrived - 1) <= _KEPT and c.flushed <= _KEPT


def said(recording: Recording, own: Recording | None = None) -> str:
    """How much of what the steps change in higher precision arrives, in words; empty where no step is taken, or nothing
    is computed in 16 bits. ``own``: the program without the patch, if that was measured, too."""
    updates = _updates(recording)
    if updates:
        taken, weights = max(c.steps for c in updates), len(updates)  # modules called by themselves share names
        first = "the first " if taken < int(recording.meta.get("steps", 0)) else ""
        steps = f"{first}{taken} steps" if taken > 1 else "the first step" if first else "1 step"
        many = f"{weights} weights" if weights > 1 else "1 weight"
        measured = _share if not _lost(recording) else _lost
        share, before = measured(recording), ""
        if own is not None and _updates(own):
            others = measured(own)
            before = " (in the healed run, too)" if others == share else f" (in the healed run: {others or 'none'})"
        if measured is _lost:
            does = "change" if weights > 1 else "changes"
            checked = f"{share} of {weights} checked weight{'s' if weights > 1 else ''}"
            return f"in {steps}, {checked} {does} by another amount than in higher precision{before}"
        middle = ", in the median," if weights > 1 and share != "100%" else ""
        return f"the updates of {many} in {steps} are{middle} {share} as large as in higher precision{before}"
    if any(u.steps for u in recording.updates) and _in_16_bits(recording):
        return "what its steps do to the weights was not compared with higher precision"
    return ""


def _updates(recording: Recording) -> list[Compared]:
    return [c for c in recording.compared if c.what == "update" and c.steps]


def _share(recording: Recording) -> str:
    return f"{median(c.arrived for c in _updates(recording)):.0%}"


def _lost(recording: Recording) -> str:
    """How many weights the steps change by another amount; empty for none."""
    return str(len(lost_steps(recording)) or "")
