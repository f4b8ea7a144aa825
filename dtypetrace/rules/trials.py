"""Which rounding a damaged result comes from: the few ops that are tried for it, and what the trials say."""

from __future__ import annotations

from dataclasses import replace

from ..records import Finding, LeftOut, Place, Precision, Tried
from ..records.findings import GONE
from .losses import Cause, Losses
from .run_facts import Run

_OF_VALUES = frozenset({"overflow", "underflow", "downcast", "lost-update", "precision-loss"})
MOST = 4
"""Ops that are tried, each by itself, for one damaged result."""
MOST_TOGETHER = 16
"""Ops that are tried together where none of them explains the damage by itself."""
MOST_RESULTS = 12
"""Damaged results for which something is tried."""
Asked = tuple[int, tuple[tuple[int, ...], ...], str]
"""A damaged op, the ops to leave out (each entry together), and the unit of its damage."""
NOT_MADE_AGAIN = "the calls that led to it could not be made again"
NOT_THERE = "the damage does not show in the calls that were made again"
_LEAST = 2.0**-6
"""The least damage that a trial can speak of: smaller ones are roundings."""
_MERGED = 0.02
"""Share of neighbours of a table that are equal and should not be."""
_CHANGED = 0.5
"""Share of the numbers that should change in place and do."""


def to_try(losses: Losses, causes: dict[Cause, int]) -> list[Asked]:
    """What to try when the run has ended: for each result that lost what it should hold, for what became infinite, for
    tables whose entries are equal, and for what is changed in place and does not change."""
    asked = {number: _suspects(losses, number, cause) for cause, number in causes.items()}
    for number, p in losses.of.items():
        unit = _unit(p)
        if unit and number not in asked:
            asked[number] = number, ((number,),), unit
    return list(asked.values())[:MOST_RESULTS]


def _unit(p: Precision) -> str:
    """The unit of the damage that an op itself does to its result; empty for none."""
    if p.infinite or p.flushed:
        return "error"
    return "change" if 0 <= p.changed < _CHANGED else "merged" if p.merged >= _MERGED else ""


def _suspects(losses: Losses, number: int, cause: Cause) -> Asked:
    """The rounding that the errors point to, those beside it, and the others above the result that added the most
    error; then several together."""
    blamed = _blamed(cause)
    together = [blamed, *losses.rounded_beside(cause)] if cause.rounded >= 0 else [blamed]
    every = list(dict.fromkeys([*together, cause.op, *losses.largest_above(number)]))[:MOST_TOGETHER]
    alone = tuple((n,) for n in every[:MOST])
    several = tuple(dict.fromkeys(tuple(sorted(ops)) for ops in (together, every[:MOST], every) if len(ops) > 1))
    return number, (*alone, *several), "choices" if losses.of[number].others else "error"


def _blamed(cause: Cause) -> int:
    return cause.rounded if cause.rounded >= 0 else cause.op


def _cures(trial: LeftOut) -> bool:
    return trial.after <= GONE * trial.before


def decided(losses: Losses, number: int, cause: Cause) -> Cause:
    """The cause of a damaged result: another op than the one that the errors point to, where only without that one's
    rounding the damage goes."""
    blamed = _blamed(cause)
    trials = [t for t in losses.trials.get(number, ()) if t.before >= _LEAST]
    if any(_cures(t) for t in trials if blamed in t.undone and t.undone[1:] == ()):
        return cause
    cured = [t for t in trials if t.undone[1:] == () and _cures(t)]
    best = min(cured, key=lambda t: t.after, default=None)
    if best is None:
        return cause
    if best.undone == (cause.op,):
        return replace(cause, rounded=-1)
    return replace(cause, how="amplified", rounded=best.undone[0])


def tried(losses: Losses, number: int, cause: Cause) -> Tried:
    """What the trials of a cause showed: alone, else together with others where that makes the damage go."""
    found = [t for t in losses.trials.get(number, ()) if _blamed(cause) in t.undone]
    op = losses.run.ops[number]
    shown = _shown(losses.run, found)
    why = NOT_THERE if found else NOT_MADE_AGAIN
    return shown or Tried(op.op, losses.run.place(op), 0.0, 0.0, missing=why)


def _shown(run: Run, found: list[LeftOut]) -> Tried | None:
    """The trial that makes the damage go with the fewest roundings left out."""
    large = (t for t in found if t.before >= _LEAST)
    best = min(large, key=lambda t: (not _cures(t), len(t.undone), t.after), default=None)
    if best is None:
        return None
    op = run.ops[best.op]
    return Tried(op.op, run.place(op), best.before, best.after, best.unit, len(best.undone))


def with_trial(run: Run, finding: Finding) -> Finding:
    """A finding about damaged values with the trial that was made at its lines, where its rule names none: it was made
    for what another rule saw there, so it speaks for this finding only where the damage goes."""
    if finding.tried is not None or finding.kind not in _OF_VALUES or finding.culprit is None:
        return finding
    if (step := _rehearsed(run, finding)) is not None:
        return replace(finding, tried=step)
    lines = {_line(finding.site), _line(finding.culprit.origin.place)} - {None}
    at = lambda number: _line(run.place(run.ops[number]))
    here = (t for t in run.recording.trials if at(t.op) in lines and all(at(n) in lines for n in t.undone))
    found = [t for t in here if (t.unit == "merged") == (finding.code == "DT204") and _cures(t)]
    shown = _shown(run, found)
    return finding if shown is None else replace(finding, tried=shown)


def _rehearsed(run: Run, finding: Finding) -> Tried | None:
    """What a step in float32 does, for a finding about the optimizer's step."""
    if finding.phase != "optimizer" or finding.culprit is None:
        return None
    names = {o.name for o in (*finding.operands, finding.culprit)}
    found = [r for r in run.recording.rehearsed if r.dtype == finding.culprit.dtype]
    best = next((r for r in found if r.name in names), next(iter(found), None))
    return Tried(finding.op, finding.site, best.before, best.after, "step") if best is not None else None


def _line(place: Place) -> tuple[str, int] | None:
    return (place.stack[0].file, place.stack[0].line) if place.stack else None
