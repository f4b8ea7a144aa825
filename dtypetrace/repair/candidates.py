"""The ways to repair each cause that a healed run met, best first, as source edits.

One cause may be refused in many calls. A way at its birth is one edit for all of them, a way at the
collision is an edit in each. Which one is right is not decided here: ``autofix`` tries them in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .. import rules
from ..records import Edit, Finding, Place, Recording, Refused
from ..rules import judgement
from ..rules.remedies import born_as, kept_wide, short, wanted_dtype
from ..source import editing
from ..source.patch import Change, Patch
from ..tables.dtypes import FLOATING
from ..tables.operators import RANDOM, is_destination

_FRAMES = 4
_SHARED = frozenset({"parameter", "load", "autocast"})
"""Births of more than one value: a module's parameters, a checkpoint."""


@dataclass(frozen=True)
class Way:
    """One way to repair a cause. ``safe``: it changes no other value than the one that was out of line."""

    kind: str
    why: str
    safe: bool
    place: Place


@dataclass
class Problem:
    """One cause, the findings that it led to, and the changes that each way would make."""

    key: tuple
    findings: list[Finding] = field(default_factory=list)
    ways: dict[str, Way] = field(default_factory=dict)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    chosen: str | None = None

    def offer(self, way: Way, changes: tuple[Change, ...]) -> None:
        """Adds what a way would change. Two ways that would change the same are one."""
        known = self.changes.setdefault(way.kind, [])
        self.ways.setdefault(way.kind, way)
        known += [c for c in changes if c not in known]

    def open_ways(self) -> list[str]:
        """Kinds of the ways that were not tried, best first, each with changes that no way before has."""
        seen = [tuple(self.changes[kind]) for kind in self.tried]
        found = []
        for kind, changes in self.changes.items():
            if changes and kind not in self.tried and tuple(changes) not in seen:
                seen.append(tuple(changes))
                found.append(kind)
        return found

    def choose_next(self) -> bool:
        """Goes on to the next way; False where there is none."""
        if self.chosen is not None:
            self.tried.add(self.chosen)
        self.chosen = next(iter(self.open_ways()), None)
        return self.chosen is not None

    def withdraw(self) -> None:
        """Takes its way back: whether it needs another is for the next run to tell."""
        self.tried.add(self.chosen)
        self.chosen = None

    @property
    def born(self) -> Place:
        """Where the dtype was born that was refused, nowhere for a problem without a culprit."""
        culprit = self.findings[0].culprit
        return culprit.origin.place if culprit else Place()

    @property
    def same_draws(self) -> list[Change]:
        """What repairs it and leaves the random numbers what they are: a factory draws others in another dtype."""
        culprit = self.findings[0].culprit
        drawn = self.chosen in ("remedy", "birth") and culprit is not None and culprit.origin.op in RANDOM
        return drawn and self.changes.get("line0") or self.chosen_changes

    @property
    def chosen_changes(self) -> list[Change]:
        return self.changes[self.chosen] if self.chosen is not None else []

    @property
    def alternatives(self) -> tuple[str, ...]:
        chosen = self.ways[self.chosen].why if self.chosen else ""
        return tuple(dict.fromkeys(why for kind in self.open_ways() if (why := self.ways[kind].why) != chosen))


def gather(recording: Recording, patch: Patch) -> list[Problem]:
    """The causes of a run's refusals, in the order in which they were met; what the program handled itself is none.

    The text that the recording's places speak of is the patch's present one.
    """
    found: dict[tuple, Problem] = {}
    for refused in recording.refused:
        if not (refused.healed or refused.left):
            continue
        finding = rules.judge(recording, refused)
        culprit = finding.culprit
        key = (
            (*rules.cause(culprit.origin, culprit.name), _wanted(recording, refused, finding))
            if culprit
            else (refused.code, *finding.site.stack[:1])
        )
        problem = found.setdefault(key, Problem(key))
        problem.findings.append(finding)
        for way, edits in _ways(recording, refused, finding):
            problem.offer(way, patch.locate(edits))
    return list(found.values())


def _ways(recording: Recording, refused: Refused, f: Finding) -> Iterator[tuple[Way, tuple[Edit, ...]]]:
    culprit, site = f.culprit, f.site
    fix = f.fix
    shared = culprit is not None and culprit.origin.kind in _SHARED
    if fix is not None:
        yield Way("remedy", fix.why, fix.safe and not shared, fix.place), fix.edits
    if culprit is None:
        return
    witness = next((w for w in refused.witnesses if w.index == culprit.index), None)
    wanted = _wanted(recording, refused, f)
    if wanted is None or witness is None or culprit.dtype.startswith("python") or wanted == culprit.dtype:
        return
    if kept_wide(recording, culprit, wanted):
        return  # narrowing it would lose what it gathers
    born = culprit.origin.place
    call = (site, refused.op, refused.module, witness.argument, witness.index)
    passed = witness.passed, witness.position
    if refused.wants == "kernel":
        yield (
            Way("kernel", f"compute {refused.op} in {wanted} and cast its result back ({short(site)})", True, site),
            editing.in_fallback(recording, *call, culprit.dtype, wanted, passed),
        )
    if born.stack and born.stack[0].user:
        kind = "cast" if culprit.origin.op == "set_default_dtype" else culprit.origin.kind
        edit = editing.at_birth(recording, kind, born, dtype := born_as(f.flow, wanted))
        yield (
            Way("birth", f"make it {dtype} where it is born ({short(born)})", not shared, born),
            (edit,) if edit else (),
        )
    steps = [s.place for s in f.flow[:-1] if s.how in ("promotion", "cast", "attribute") and s.place.stack]
    for number, place in enumerate(reversed(steps)):
        edit = editing.at_own_line(recording, place, wanted)
        way = Way(f"flow{number}", f"cast it to {wanted} on its way ({short(place)})", True, place)
        yield way, (edit,) if edit else ()
    if is_destination(refused.op, witness.argument, witness.index):
        others = [
            w
            for w in refused.witnesses
            if w.dtype in FLOATING and w.dtype != culprit.dtype and culprit.dtype in FLOATING
        ]
        edits = (
            editing.at_call(recording, site, refused.op, refused.module, w.argument, w.index, culprit.dtype)
            for w in others
        )
        yield (
            Way("call", f"cast what is written to {culprit.dtype} at the call ({short(site)})", True, site),
            tuple(filter(None, edits)),
        )
    else:
        edit = editing.at_call(recording, *call, wanted, passed)
        yield (
            Way("call", f"cast {culprit.shown} to {wanted} at the call ({short(site)})", True, site),
            (edit,) if edit else (),
        )
        other = (
            next((w for w in refused.witnesses if w.dtype == wanted and w.index != witness.index), None)
            if not witness.passed
            else None
        )
        edit = editing.at_call_like(recording, *call, (other.argument, other.index)) if other is not None else None
        yield (
            Way("like", f"cast {culprit.shown} at the call to the dtype of what it meets ({short(site)})", True, site),
            (edit,) if edit else (),
        )
        for number, (place, edit) in enumerate(editing.at_callers(recording, *call, wanted, passed)):
            yield (
                Way(
                    f"caller{number}",
                    f"cast {edit.before} to {wanted} where it is passed on ({short(place)})",
                    True,
                    place,
                ),
                (edit,),
            )
    if culprit.origin.kind == "load":
        edit = editing.at_load(recording, born, wanted)
        yield Way("load", f"cast what is loaded to {wanted} ({short(born)})", False, born), (edit,) if edit else ()
    for number, place in enumerate(_own_lines(born)):
        edit = editing.at_own_line(recording, place, wanted)
        yield (
            Way(f"line{number}", f"cast what this line gets to {wanted} ({short(place)})", False, place),
            (edit,) if edit else (),
        )


def _wanted(recording: Recording, refused: Refused, f: Finding) -> str | None:
    """The dtype that the culprit is to have. One value can be wanted in two, by two models: each is a cause of its own."""
    if refused.wants == "kernel" or refused.code == "DT116":
        return "float32"
    return wanted_dtype(refused, f.culprit, judgement.in_line(recording, refused)[0])


def _own_lines(place: Place) -> list[Place]:
    """The place seen from each of the user's frames, the innermost first: a library's value is handed out there."""
    return [Place(place.stack[i:]) for i, frame in enumerate(place.stack) if frame.user][:_FRAMES]
