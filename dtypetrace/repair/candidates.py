"""The repair candidates for each cause that a healed run met, best first, as changes of the source.

One cause may be refused in many calls. A candidate at its birth is one edit for all of them; a candidate at the
collision is an edit in each. The candidates come from ``rules.remedies``. Which of them repairs the program is not
decided here: ``repair.search`` tries them in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from .. import rules
from ..parts import attempt
from ..records import Finding, Fix, Place, Recording, Refused
from ..rules import checks, consequences, on_path, remedies
from ..rules.case import SHARED, Case, short
from ..source import optimizers
from ..source.patch import Change, Patch
from ..tables.english import listed
from ..tables.operators import tagged

BEST = "remedy"
"""The name of each finding's best candidate, whichever strategy proposes it: these are tried together."""
_AT_ORIGIN = frozenset({BEST, "birth"})


@dataclass
class Problem:
    """One cause, the findings that it led to, and the changes that each candidate would make."""

    key: tuple[object, ...]
    findings: list[Finding] = field(default_factory=list)
    fixes: dict[str, Fix] = field(default_factory=dict)
    """The candidates by name, as the first finding has them. ``safe``: it changes no other value than the wrong one."""
    later: set[str] = field(default_factory=set)
    """Those among them that cast in the call of a later finding: alone, they are not enough."""
    changes: dict[str, list[Change]] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)
    """How many of those the first finding needs that has the candidate, and those that refuse the same value; the
    others are for later findings."""
    tried: set[str] = field(default_factory=set)
    chosen: str | None = None
    value: int = -1
    """The op that made what the first finding refuses."""

    def offer(self, name: str, fix: Fix, changes: tuple[Change, ...], value: int = -1) -> None:
        """Adds the changes that a candidate would make. Two candidates with the same changes are one. ``value``: the op
        that made what is refused here."""
        sites = [f.site for f in self.findings]
        if name not in self.fixes and sites and fix.place == sites[-1] != sites[0]:
            self.later.add(name)
        known = self.changes.setdefault(name, [])
        self.fixes.setdefault(name, fix)
        new, first = [c for c in changes if c not in known], not known or self.value == value >= 0
        at = self.needed.get(name, 0) if first else len(known)
        known[at:at] = new
        if known and first:
            self.needed[name] = at + len(new)

    def begin(self) -> None:
        """Keeps only those changes of the chosen candidate that the first finding needs. Later findings may be
        artefacts of the casts that healing inserts."""
        del self.chosen_changes[self._first :]

    @property
    def _first(self) -> int:
        return self.needed.get(self.chosen or "", len(self.chosen_changes))

    def remaining(self) -> list[str]:
        """Candidates that were not tried, best first, each with changes that no earlier candidate has."""
        seen = [tuple(self.changes[name]) for name in self.tried]
        found = []
        for name, changes in self.changes.items():
            if changes and name not in self.tried and tuple(changes) not in seen:
                seen.append(tuple(changes))
                found.append(name)
        return found

    def choose_next(self) -> bool:
        """Goes on to the next candidate; returns False where there is none."""
        if self.chosen is not None:
            self.tried.add(self.chosen)
        self.chosen = next(iter(self.remaining()), None)
        return self.chosen is not None

    def choose_other_side(self) -> bool:
        """Goes on to the first candidate that casts what the culprit met; returns False where there is none."""
        self.tried.update(name for name in self.changes if not name.startswith(_OTHER_SIDE))
        return self.choose_next()

    def withdraw(self) -> None:
        """Withdraws the chosen candidate; the next run shows whether the cause needs another."""
        if self.chosen is not None:
            self.tried.add(self.chosen)
        self.chosen = None

    @property
    def born(self) -> Place:
        """Where the refused dtype was born; NOWHERE for a problem without a culprit."""
        culprit = self.findings[0].culprit
        return culprit.origin.place if culprit else Place()

    @property
    def same_draws(self) -> list[Change]:
        """Changes that repair it and keep the random numbers the same: a factory draws others in another dtype."""
        culprit = self.findings[0].culprit
        drawn = self.chosen in _AT_ORIGIN and culprit is not None and tagged(culprit.origin.op or "", "random")
        return (self.changes.get("own lines") or self.chosen_changes) if drawn else self.chosen_changes

    @property
    def chosen_changes(self) -> list[Change]:
        return self.changes[self.chosen] if self.chosen is not None else []

    @property
    def alternatives(self) -> tuple[str, ...]:
        """What else may repair it, in one sentence each. Of several on one line, which come to the same, the first."""
        lines = [_line(self.fixes[self.chosen])] if self.chosen else []
        found = []
        for name in self.remaining():
            if name.startswith((_UNCHECKED, _OTHER_SIDE)) or name in self.later:
                continue
            if (line := _line(self.fixes[name])) not in lines:
                lines.append(line)
                found.append(self.described(name))
        return tuple(found)

    def described(self, name: str) -> str:
        """What a candidate does, and on which line; of the chosen one, which other lines later findings need."""
        fix = self.fixes[name]
        place = short(fix.place) if fix.place != fix.named else ""
        at = f" ({place})" if place else ""
        return f"{fix.instruction}{at}{fix.reason}{self._too() if name == self.chosen else ''}"

    def _too(self) -> str:
        first, later = self.chosen_changes[: self._first], self.chosen_changes[self._first :]
        known = {(c.file, line) for c in first for line in c.lines}
        others = dict.fromkeys((c.file, line) for c in later for line in c.lines)
        lines = [optimizers.short(*line) for line in others if line not in known]
        return f"; {listed(lines)} {'is' if len(lines) == 1 else 'are'} changed, too" if lines else ""


_OTHER_SIDE = "other side: "
_UNCHECKED = "own lines"
"""What a call of the program's own gives may hold the tensor and be none: only a run shows whether it can be cast."""


def _line(fix: Fix) -> tuple[str, int]:
    return fix.place.file, fix.place.line


def gather(recording: Recording, patch: Patch) -> list[Problem]:
    """The causes of a run's refusals, in the order in which they were met, except those that the program itself
    handles.

    The recording's places refer to the present text of the patch. The first cause is judged by what ran before it, as
    ``run`` does: what healing then let run is not what a repaired program does.
    """
    found: dict[tuple[object, ...], Problem] = {}
    for number, refused in enumerate(recording.refused):
        if (refused.healed or refused.left) and consequences.of_healing(recording, refused) < 0:
            seen = recording if found else _until(recording, number)
            judged = rules.judged(seen, refused)
            finding = rules.finding_of(seen, refused, judged)
            key = _key(refused, finding, judged.case)
            problem = found.setdefault(key, Problem(key))
            problem.findings.append(finding)
            attempt(f"the candidates for {finding.code}", partial(_offer, problem, judged.case, patch), None)
    return list(found.values())


def _until(recording: Recording, number: int) -> Recording:
    """A recording as it would be if it had ended with one of its refusals."""
    after = recording.refused[number].after
    if after < 0:
        return recording
    return replace(recording, ops=recording.ops[:after], refused=recording.refused[: number + 1])


def _key(refused: Refused, finding: Finding, case: Case | None) -> tuple[object, ...]:
    """What makes two refusals one problem. One value that two models want in two dtypes is two problems."""
    if case is None:
        return (refused.code, *finding.site.stack[:1])
    return (*rules.cause(case.origin, case.culprit.name), on_path.target(case) or case.wanted)


def _offer(problem: Problem, case: Case | None, patch: Patch) -> None:
    """Adds the changes for one refused call: first what its finding shows, then what else may repair it, last what
    repairs it from the other side: a verdict on who is wrong is no proof.

    Candidates that the dtype rules refute are left out, unless nothing else is left.
    """
    if case is None or case.refused.in_vain:
        return
    shown, value = remedies.remedy(case), case.witness.producer
    if len(problem.findings) == 1:
        problem.value = value
    if shown is not None:
        safe = shown.safe and case.origin.kind not in SHARED
        problem.offer(BEST, replace(shown, safe=safe), patch.locate(shown.edits), value)
    found = [c for c in remedies.candidates(case) if not checks.forbidden(case, c.fix)]
    sound = [c for c in found if not checks.objection(case, c.fix)]
    left = shown is not None and shown.edits or any(c.fix.edits for c in sound)
    for candidate in sound if left else found:
        problem.offer(candidate.strategy, candidate.fix, patch.locate(candidate.fix.edits), value)
    if (other := rules.other_side(case)) is None:
        return
    for candidate in remedies.candidates(other):
        if not checks.objection(other, candidate.fix):
            problem.offer(f"{_OTHER_SIDE}{candidate.strategy}", candidate.fix, patch.locate(candidate.fix.edits))
