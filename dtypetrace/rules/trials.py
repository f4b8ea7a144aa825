"""Which rounding a damaged result comes from: the few ops that are tried for it, and what the trials say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from math import prod

from .. import graph
from ..records import Finding, LeftOut, Place, Precision, Tried, Value
from ..records.findings import NOT_FINITE, gone
from ..tables.codes import OF_VALUES
from ..tables.dtypes import HALF, REAL
from ..tables.operators import is_cast, is_move, writes
from .losses import KEPT, Cause, Losses
from .run_facts import Run

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
_STILL = 0.0625
"""The share of numbers that may stay infinite or NaN: those that are zero but for roundings of the reference."""
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
    choice = [number] if losses.of[number].others else []
    every = list(dict.fromkeys([*together, cause.op, *choice, *losses.largest_above(number)]))[:MOST_TOGETHER]
    alone = tuple((n,) for n in every[:MOST])
    several = tuple(dict.fromkeys(tuple(sorted(ops)) for ops in (together, every[:MOST], every) if len(ops) > 1))
    return number, (*alone, *several), "choices" if losses.of[number].others else "error"


def _blamed(cause: Cause) -> int:
    return cause.rounded if cause.rounded >= 0 else cause.op


def _cures(trial: LeftOut) -> bool:
    return gone(trial.before, trial.after)


def _mostly_finite(trial: LeftOut) -> bool:
    """Whether few of the numbers that were infinite or NaN still are."""
    return trial.before >= NOT_FINITE and trial.after <= _STILL * trial.before


def decided(losses: Losses, number: int, cause: Cause) -> Cause:
    """The cause of a damaged result: another op than the one that the errors point to, where only without that one's
    rounding the damage goes."""
    blamed = _blamed(cause)
    alone = [t for t in losses.trials.get(number, ()) if t.before >= _LEAST and t.undone[1:] == ()]
    cured = [t for t in alone if _cures(t)] or [t for t in alone if _mostly_finite(t)]
    if any(t.undone == (blamed,) for t in cured):
        return cause
    best = min(cured, key=lambda t: t.after, default=None)
    if best is None:
        return cause
    if best.undone == (number,) and losses.of[number].others:
        return Cause(number, "amplified")  # it rounds the number with which it compares
    if best.undone == (cause.op,):
        return replace(cause, rounded=-1)
    return replace(cause, how="amplified", rounded=best.undone[0])


def of_wide(losses: Losses, number: int) -> bool:
    """Whether the damage of a result goes without roundings that are none to 16 bits, until most of it is right."""
    wide = lambda n: not set(losses.run.ops[n].outputs).intersection(HALF)
    trials = losses.trials.get(number, ())
    return any(_cures(t) and t.after < KEPT and all(map(wide, t.undone)) for t in trials)


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


def slight(trial: Tried) -> bool:
    """Whether the damage that a trial speaks of is no more than a rounding."""
    return trial.unit == "error" and trial.before < _LEAST


MOST_EACH = 2
"""Ops of one line that are tried for one finding."""


class Suspected:
    """What to try for the findings that no trial speaks for yet, and which trials are theirs."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._measured = {p.op: p for p in (*run.recording.spot_checks, *run.recording.precisions)}
        self._at: dict[tuple[str, int] | None, list[int]] = {}
        for number, op in enumerate(run.ops):
            self._at.setdefault(_line(run.place(op)), []).append(number)

    def asked(self, findings: Iterable[Finding]) -> list[Asked]:
        """For each finding: its op, and the result below it that is spoilt most."""
        return list(dict.fromkeys(one for f in findings if _open(f) and f.severity != "note" for one in self.of(f)))[
            :MOST_RESULTS
        ]

    def of(self, f: Finding) -> list[Asked]:
        """What to try for one finding: without the roundings at the lines that it names, and without those just above
        what is damaged."""
        assert f.culprit is not None
        born = [
            n for n in self._at.get(_line(f.culprit.origin.place), ()) if f.culprit.dtype in self.run.ops[n].outputs
        ]
        here = [n for n in self._at.get(_line(f.site), ()) if self.run.ops[n].op == f.op]
        sites = self._rounds(here) or self._gradients(f) or self._rounds(born)
        held = [n for at in sites if writes(self.run.ops[at]) for n in self._moved(self.run.ops[at].inputs[0].producer)]
        below = [n for n, _ in self.run.below([*sites, *held], lambda n: True, _BELOW) if n in self._measured]
        worst = max(below, key=lambda n: self._measured[n].total, default=-1)
        numbers = [n for n in dict.fromkeys((*sites[:MOST_EACH], worst)) if n >= 0]
        named = tuple(sorted({*self._rounds(born), *self._rounds(here)}))
        return [(n, tuple(dict.fromkeys((*self.birth(f), *self._near(n, named)))), self._unit(f, n)) for n in numbers]

    def birth(self, f: Finding) -> list[tuple[int, ...]]:
        """The casts at the line of birth that a finding names, with all that computes in their dtype because of them:
        none where the dtype was decided otherwise."""
        assert f.culprit is not None
        ops, dtype = self.run.ops, f.culprit.dtype
        at = [
            n for n in self._at.get(_line(f.culprit.origin.place), ()) if is_cast(ops[n]) and ops[n].outputs == (dtype,)
        ]
        same = lambda n: ops[n].outputs[:1] == (dtype,) and not is_cast(ops[n])
        below = [n for n, _ in self.run.below(at, same, _BELOW) if same(n)]
        return [(*at, *below)] if at else []

    def _rounds(self, numbers: Iterable[int]) -> list[int]:
        """Those that may round: all but views and the like."""
        return [n for n in numbers if not is_move(self.run.ops[n]) or writes(self.run.ops[n])]

    def _moved(self, number: int) -> list[int]:
        return list(takewhile(lambda n: n >= 0, graph.first_operands(self.run.ops, number)))

    def _near(self, number: int, named: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The ops to leave out: those that a finding names, together; the op itself; all narrow ones just above."""
        ops = self.run.ops
        above = {number, *graph.ops_above(ops, [number])}
        narrow = sorted((n for n in above if ops[n].outputs[:1] and ops[n].outputs[0] in HALF), reverse=True)
        sets = (named, (number,), tuple(sorted(narrow[:MOST])), tuple(sorted(narrow[:MOST_TOGETHER])))
        return tuple(dict.fromkeys(ops for ops in sets if ops))

    def _gradients(self, f: Finding) -> list[int]:
        """The ops of the backward pass that may have made the gradient of the weight that a finding about a step names:
        those with as many numbers in its dtype, the last ones first."""
        if f.phase != "optimizer" or f.culprit is None:
            return []
        size, ops = prod(f.culprit.shape), self.run.ops
        back = [n for n, op in enumerate(ops) if op.phase == "backward" and prod(op.shape) == size]
        return [n for n in reversed(self._rounds(back)) if ops[n].outputs[:1] == (f.culprit.dtype,)]

    def _unit(self, f: Finding, number: int) -> str:
        """The unit of a finding's damage to the result of an op."""
        made = self.run.ops[number].outputs
        if made and made[0] not in REAL:
            return "choices"
        unit = _unit(self._measured[number]) if number in self._measured else ""
        return "error" if not unit or unit == "merged" and f.code != "DT204" else unit


def _open(f: Finding) -> bool:
    """Whether a finding is about damaged values and no trial speaks for it yet."""
    return f.kind in OF_VALUES and f.culprit is not None and (f.tried is None or bool(f.tried.missing))


def with_trial(suspected: Suspected, finding: Finding) -> Finding:
    """A finding about damaged values with the trial that was made for it, or at its lines for what another rule saw
    there, where its rule names none: it speaks for this finding only where the damage goes."""
    if not _open(finding) or finding.culprit is None:
        return finding
    run = suspected.run
    if (step := _rehearsed(run, finding)) is not None:
        return replace(finding, tried=step)
    lines = {_line(finding.site), _line(finding.culprit.origin.place)} - {None}
    own = {(n, ops) for n, sets, _ in suspected.of(finding) for ops in sets} if run.recording.trials else set()
    at = lambda number: _line(run.place(run.ops[number]))
    theirs = lambda t: (t.op, t.undone) in own or all(at(n) in lines for n in (t.op, *t.undone))
    found = [t for t in run.recording.trials if _cures(t) and theirs(t)]
    least = _ONE_ROUNDING if finding.kind in _ROUNDINGS else _LEAST
    unit = lambda t: t.unit != "merged" or finding.code == "DT204"
    shown = _shown(run, [t for t in found if unit(t)], least) or _beside(run, finding)
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
    if finding.phase != "optimizer" or finding.culprit is None or finding.kind == "zero-gradient":
        return None
    names = {o.name for o in (*finding.operands, finding.culprit)}
    found = [r for r in run.recording.rehearsed if r.dtype == finding.culprit.dtype]
    best = next((r for r in found if r.name in names), next(iter(found), None))
    return Tried(finding.op, finding.site, best.before, best.after, "step") if best is not None else None


def _line(place: Place) -> tuple[str, int] | None:
    return (place.stack[0].file, place.stack[0].line) if place.stack else None
