"""Which rounding a damaged result comes from: the few ops that are tried for it, and what the trials say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .. import graph
from ..records import Finding, LeftOut, Place, Precision, Tried, Value
from ..records.findings import GONE
from ..tables.dtypes import HALF, REAL
from ..tables.operators import is_cast
from .losses import Cause, Losses
from .run_facts import Run

_OF_VALUES = frozenset({"overflow", "underflow", "downcast", "lost-update", "precision-loss", "zero-gradient"})
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
_ONE_ROUNDING = 2.0**-13
"""The same for a finding that is about one rounding, where it goes."""
_ROUNDINGS = frozenset({"downcast", "precision-loss"})
"""Findings that are about one."""
_BELOW = 256
"""How many ops below a damaged one are searched for the one that it spoils most."""
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


def _shown(run: Run, found: list[LeftOut], least: float = _LEAST) -> Tried | None:
    """The trial that makes the damage go with the fewest roundings left out."""
    large = (t for t in found if t.before >= least)
    best = min(large, key=lambda t: (not _cures(t), len(t.undone), t.after), default=None)
    if best is None:
        return None
    op = run.ops[best.op]
    return Tried(op.op, run.place(op), best.before, best.after, best.unit, len(best.undone))


def of_findings(run: Run, findings: Iterable[Finding]) -> list[Asked]:
    """What to try for the findings that no trial speaks for yet: their op, and the result below it that is spoilt most,
    without the roundings at the lines that they name, and without those just above."""
    measured = {p.op: p for p in (*run.recording.spot_checks, *run.recording.precisions)}
    at = _lines(run)
    found: dict[Asked, None] = {}
    for f in findings:
        if f.severity == "note" or f.kind not in _OF_VALUES or f.culprit is None or f.tried and not f.tried.missing:
            continue
        born = [n for n in at.get(_line(f.culprit.origin.place), ()) if f.culprit.dtype in run.ops[n].outputs]
        sites = [n for n in at.get(_line(f.site), ()) if run.ops[n].op == f.op] or _gradients(run, f) or born
        below = [n for n, _ in run.below(sites, lambda n: True, _BELOW) if n in measured]
        worst = max(below, key=lambda n: measured[n].total, default=-1)
        for number in dict.fromkeys((*sites[:MOST_EACH], worst)):
            if number >= 0 and (suspects := _near(run, number, [*born, *sites])):
                found[number, suspects, _unit_of(run, number, measured.get(number))] = None
    return list(found)[:MOST_RESULTS]


MOST_EACH = 2
"""Ops of one line that are tried for one finding."""


def _near(run: Run, number: int, named: list[int]) -> tuple[tuple[int, ...], ...]:
    """The ops to leave out: those at the lines that a finding names, together; the op itself; all narrow ones just
    above."""
    above = {number, *graph.ops_above(run.ops, [number])}
    narrow = sorted((n for n in above if run.ops[n].outputs[:1] and run.ops[n].outputs[0] in HALF), reverse=True)
    sets = (sorted(above.intersection(named)), [number], narrow[:MOST], narrow[:MOST_TOGETHER])
    return tuple(dict.fromkeys(tuple(sorted(ops)) for ops in sets if ops))


def _gradients(run: Run, f: Finding) -> list[int]:
    """The ops of the backward pass that made the gradient of the weight that a finding about a step names."""
    if f.phase != "optimizer" or f.culprit is None:
        return []
    makes = lambda n: run.ops[n].of >= 0 and any(i.name == f.culprit.name for i in run.ops[run.ops[n].of].inputs)
    return [n for n, op in enumerate(run.ops) if op.phase == "backward" and op.outputs and makes(n)][-1:]


def _unit_of(run: Run, number: int, p: Precision | None) -> str:
    if not run.ops[number].outputs or run.ops[number].outputs[0] in REAL:
        return _unit(p) or "error" if p is not None else "error"
    return "choices"


def _lines(run: Run) -> dict[tuple[str, int] | None, list[int]]:
    found: dict[tuple[str, int] | None, list[int]] = {}
    for number, op in enumerate(run.ops):
        found.setdefault(_line(run.place(op)), []).append(number)
    return found


def with_trial(run: Run, finding: Finding) -> Finding:
    """A finding about damaged values with the trial that was made at its lines, where its rule names none: it was made
    for what another rule saw there, so it speaks for this finding only where the damage goes."""
    known = finding.tried is not None and not finding.tried.missing
    if known or finding.kind not in _OF_VALUES or finding.culprit is None:
        return finding
    if (step := _rehearsed(run, finding)) is not None:
        return replace(finding, tried=step)
    lines = {_line(finding.site), _line(finding.culprit.origin.place)} - {None}
    at = lambda number: _line(run.place(run.ops[number]))
    here = (t for t in run.recording.trials if at(t.op) in lines or all(at(n) in lines for n in t.undone))
    found = [t for t in here if t.unit != "merged" or finding.code == "DT204"]
    least = _ONE_ROUNDING if finding.kind in _ROUNDINGS else _LEAST
    shown = _shown(run, [t for t in found if _cures(t)], least) or _beside(run, finding)
    return finding if shown is None else replace(finding, tried=shown)


def _beside(run: Run, finding: Finding) -> Tried | None:
    """What a call would have made in a wider dtype, where its measurement computed that beside it: integers, and what a
    cast or a copy makes zero or infinite."""
    for v in run.recording.values:
        op = run.ops[v.op]
        if op.op != finding.op or _line(run.place(op)) != _line(finding.site):
            continue
        if (share := _spoilt(v, is_cast(op) or op.aten.startswith("copy"))) > 0:
            return Tried(op.op, run.place(op), share, 0.0, "spoilt")
    return None


def _spoilt(v: Value, copies: bool) -> float:
    """The share of the numbers measured that a call spoils by their dtype."""
    if v.exact:
        return v.spoilt / v.exact
    if not copies:
        return 0.0
    return v.flushed / v.nonzero if v.nonzero and v.flushed else v.made / max(v.measured, 1)


def _rehearsed(run: Run, finding: Finding) -> Tried | None:
    """What a step in float32 does, for a finding about the optimizer's step."""
    if finding.phase != "optimizer" or finding.culprit is None or finding.kind != "lost-update":
        return None
    names = {o.name for o in (*finding.operands, finding.culprit)}
    found = [r for r in run.recording.rehearsed if r.dtype == finding.culprit.dtype]
    best = next((r for r in found if r.name in names), next(iter(found), None))
    return Tried(finding.op, finding.site, best.before, best.after, "step") if best is not None else None


def _line(place: Place) -> tuple[str, int] | None:
    return (place.stack[0].file, place.stack[0].line) if place.stack else None
