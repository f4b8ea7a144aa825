"""Where several findings have one cause, the earliest tells it and the others are its consequences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..records import Finding, Frame


def left_out(refused: Iterable[Finding], silent: Iterable[Finding]) -> list[Finding]:
    """The silent findings that tell a cause of their own; what only follows from another is left out, or a note."""
    silent = list(silent)
    codes = {f.code for f in silent}
    collided = _births(refused)
    narrowed = _births(f for f in silent if f.code == "DT203")
    starved = any(f.code == "DT302" and f.phase == "backward" and f.severity != "note" for f in silent)
    infinite = any(f.code == "DT301" and f.phase != "optimizer" and f.severity != "note" for f in silent)
    broken = any(f.code == "DT303" and f.severity == "error" for f in silent)
    kept = []
    for f in silent:
        if _birth(f) in collided:
            continue  # what an operand did before it was refused
        if any(step.how == "cast" and step.place.stack[:1] in collided for step in f.flow):
            continue  # the cast that a refusal goes back to
        if f.code == "DT503" and codes & {"DT303", "DT304"}:
            continue  # what a run has measured is not foretold
        if f.code in ("DT307", "DT308") and _birth(f) in narrowed:
            continue  # a write that narrows is the cause of what it rounds away
        if starved and f.code in ("DT304", "DT305") and f.phase == "optimizer":
            f = replace(f, severity="note")  # gradients that were flushed are why the weights do not move
        if infinite and f.code == "DT305" and f.phase == "optimizer":
            f = replace(f, severity="note")  # they were divided by it
        if broken and f.code == "DT302" and f.phase == "backward":
            f = replace(f, severity="note")  # of weights that are NaN, no gradient is worth having
        kept.append(f)
    return kept


def _births(findings: Iterable[Finding]) -> set[tuple[Frame, ...]]:
    return {_birth(f) for f in findings} - {()}


def _birth(f: Finding) -> tuple[Frame, ...]:
    return f.culprit.origin.place.stack[:1] if f.culprit is not None else ()
