"""What is found and not refused: the edits against it, run one after the other until one is proven.

Each finding gets a patch of its own, the smallest first; the next one is looked for in the program with the patches
that are proven. The same finding in a patched run says whether it is still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .. import graph, rules
from ..records import Finding, Recording
from ..rules import wide_weights
from ..rules.lost_steps import lost_steps
from ..rules.training import in_few_steps
from ..rules.wide_weights import TrainingEdits
from ..source.patch import Change
from . import steps
from .clock import OutOfTime
from .proof import Proof, finite, learns_less, narrowed
from .runs import Outcome, same_error
from .search import Repair

_LEARNING = ("DT304", "DT303", "DT301")
"""What keeps weights from learning, where the advice is about the optimizer's step."""
_UNSCALED = ("DT404", "DT302")
"""What a loss scaler prevents: gradients that vanish in float16 on their way back."""
_NONE_KNOWN = "no edit of the program's own lines is known for it"
_BESIDE_REFUSALS = "the patch is for what is refused; once it is written, fix tries this, too"
_WHY_NONE = {
    "DT402": "you choose which modules get adapters, and how large the adapters are",
    "DT403": "fix moves no lines; before you move this line, check that no line up to its new place uses the optimizer",
}


@dataclass(frozen=True)
class Trouble:
    """A serious finding that torch did not refuse, and the edits that may mend it, the smallest first."""

    finding: Finding
    edits: tuple[TrainingEdits, ...]

    @property
    def size(self) -> int:
        """About how many lines the first of them changes; words come last."""
        return sum(1 + e.after.count("\n") for e in self.edits[0].edits) if self.edits else 1 << 16

    @property
    def trains(self) -> bool:
        """Whether it is about what optimizer steps do."""
        return self.finding.code in _LEARNING and _planned(self.finding)

    @property
    def only_feared(self) -> bool:
        """Whether it is a setting whose damage was looked for, and not found: gradients that did vanish are DT302."""
        return self.finding.code == "DT404"

    @property
    def in_words(self) -> tuple[str, str]:
        """What is to be done by hand, and why no edit is tried."""
        fix = self.finding.fix
        advice = "; ".join((fix.why, *fix.lines)) if fix is not None else ""
        why = _BESIDE_REFUSALS if self.only_feared and self.edits else _NONE_KNOWN
        return advice, _WHY_NONE.get(self.finding.code, why)


@dataclass(frozen=True)
class Mended:
    """A patch that was run: the finding that it is for, what it does, whether it is proven, and its changes."""

    finding: Finding
    done: str
    proof: Proof
    changes: list[Change]
    outcome: Outcome
    rejected: tuple[tuple[str, str], ...] = ()
    """The edits that were run before it, and why each is not proven."""


def troubles(recording: Recording) -> list[Trouble]:
    """The serious findings of a run that torch did not refuse, those first for which the smallest edit is known."""
    serious = (f for f in rules.find(recording) if f.severity != "note" and f.kind != "collision")
    found = [Trouble(f, tuple(_edits(recording, f))) for f in serious if not in_few_steps(recording, f)]
    return sorted(found, key=lambda trouble: trouble.size)


def _planned(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.kind == "plan"


def _edits(recording: Recording, finding: Finding) -> Iterator[TrainingEdits]:
    """The edits that may mend a finding."""
    code, fix, culprit = finding.code, finding.fix, finding.culprit
    if fix is None or code in _WHY_NONE:
        return
    if code in _LEARNING and _planned(finding):
        if culprit is not None:
            yield from wide_weights.candidates(recording, culprit.origin, culprit.dtype, finding.site)
    elif code in _UNSCALED and _planned(finding):
        step = next((u.place for u in recording.updates if u.place >= 0), -1)
        yield from wide_weights.scaling(recording, graph.place_of(recording, step)) if step >= 0 else ()
    elif edits := fix.edits or fix.by_hand:
        yield TrainingEdits.of(*edits)


def mended(repair: Repair, before: Outcome, show: Callable[[Mended], None]) -> tuple[list[Mended], Outcome]:
    """Mends one finding after the other, until none is left that was not tried or the time is used up.

    Returns what was run, one for each finding, and the run of the program with all patches that are proven; these are
    then among the changes of the repair. ``before``: the run with the changes that the repair has. ``show`` is given
    each patch when it is known whether it is proven. Beside the changes for what is refused, nothing is changed that
    did no damage.
    """
    found: list[Mended] = []
    seen: set[object] = set()
    refused = bool(repair.changes)
    while (trouble := _next(before.recording, seen, refused)) is not None:
        seen.add(_sort(trouble.finding))
        repair.say(f"{trouble.finding.code}: {trouble.finding.title}")
        try:
            tried = _first_proven(repair, before, trouble)
        except OutOfTime as over:
            repair.say(f"stopped: {over}")
            break
        if tried is None:
            continue
        found.append(tried)
        if tried.proof.proven:
            repair.added += tried.changes
            repair.patch.set(repair.changes)
            repair.patched = before = tried.outcome
        show(tried)
    return found, before


def _next(recording: Recording, seen: set[object], refused: bool) -> Trouble | None:
    left = (t for t in troubles(recording) if t.edits and not (refused and t.only_feared))
    return next((t for t in left if _sort(t.finding) not in seen), None)


def _sort(finding: Finding) -> object:
    """What a finding is called in two runs of a program whose lines may have moved."""
    if finding.kind == "plan":
        return finding.code
    frame = finding.site.user_frame
    return finding.code, finding.op, finding.module, frame.function if frame is not None else ""


def _first_proven(repair: Repair, before: Outcome, trouble: Trouble) -> Mended | None:
    """Runs each edit until one is proven; else the first one that was run. None where no edit fits the text.

    Edits that need an autocast region are run only after others were refused.
    """
    refused = False
    rejected: list[Mended] = []
    for candidate in trouble.edits:
        new = _located(repair, [], candidate)
        if not new or candidate.region and not refused:
            continue
        tried = _tried(repair, before, trouble, candidate.done, new)
        refused = refused or tried.outcome.refused
        if not tried.proof.proven and trouble.trains:
            tried = _scaled_too(repair, before, trouble, tried) or tried
        if tried.proof.proven:
            others = tuple((m.done, m.proof.why) for m in rejected)
            return Mended(tried.finding, tried.done, tried.proof, tried.changes, tried.outcome, others)
        rejected.append(tried)
    return next(iter(rejected), None)


def _located(repair: Repair, besides: list[Change], candidate: TrainingEdits) -> list[Change]:
    """The changes of a candidate, beside those that are chosen; none unless all its edits fit."""
    chosen = [*repair.changes, *besides]
    repair.patch.set(chosen)
    new = [change for edit in candidate.edits for change in repair.located(edit)]
    fit = len(new) == len(candidate.edits) and repair.patch.set((*chosen, *new)) == (*chosen, *new)
    repair.patch.set(repair.changes)
    return new if fit else []


def _scaled_too(repair: Repair, before: Outcome, trouble: Trouble, tried: Mended) -> Mended | None:
    """The same edits with a loss scaler, if they are proven with it: for gradients that vanish in float16."""
    outcome = tried.outcome
    if outcome.refused or outcome.error is not None or "float16" not in _computed(outcome.recording):
        return None
    step = next((u.place for u in outcome.recording.updates if u.place >= 0), -1)
    place = graph.place_of(outcome.recording, step)
    for candidate in wide_weights.scaling(outcome.recording, place) if step >= 0 else ():
        new = _located(repair, tried.changes, candidate)
        if new:
            done = f"{tried.done}; {candidate.done}"
            again = _tried(repair, before, trouble, done, [*tried.changes, *new])
            if again.proof.proven:
                return again
    return None


def _tried(repair: Repair, before: Outcome, trouble: Trouble, done: str, new: list[Change]) -> Mended:
    outcome = repair.tried([*repair.changes, *new], done)
    return Mended(trouble.finding, done, _proof(repair, before, outcome, trouble), new, outcome)


def _computed(recording: Recording) -> set[str]:
    return {dtype for op in recording.ops for dtype in op.outputs}


def _proof(repair: Repair, before: Outcome, after: Outcome, trouble: Trouble) -> Proof:
    """Whether the finding is gone after the edit, and nothing else became worse."""
    if why := _worse(repair, before, after, trouble):
        return Proof(False, why, 1)
    trained = [u for u in after.recording.updates if u.steps]
    if trouble.trains and not trained:
        return Proof(False, "the patched program takes no optimizer step", 1)
    said = []
    if trained and any(u.steps for u in before.recording.updates):
        moved = sum(u.moved for u in trained), sum(u.reached for u in trained)
        arrived = "all" if moved[0] == moved[1] else f"{moved[0]:,}"
        said.append(f"of the {moved[1]:,} checked numbers whose gradient is not zero, {arrived} moved")
    said.append(steps.said(after.recording))
    compared = "".join(f"; {text}" for text in said if text)
    return Proof(True, f"{trouble.finding.code} is gone, nothing is refused, and there is no new finding{compared}", 1)


def _worse(repair: Repair, before: Outcome, after: Outcome, trouble: Trouble) -> str:
    """Why a patched run is no proof, in words; empty where nothing is against it."""
    if after.refused and not before.refused:
        return f"{after.recording.refused[0].op} then refuses its operands"
    if not same_error(before.error, after.error):
        return f"the patched program ends with {after.ending}"
    if still := _still(before.recording, after.recording, trouble.finding):
        return f"{still.code} is still found: {still.title}"
    if trouble.trains and (lost := lost_steps(after.recording)):
        name, why = next(iter(lost.items()))
        return f"its steps still do not change weights as they do in higher precision: {name}: {why}"
    if not trouble.trains and (lost_now := repair.lost_by_patch(after)):
        return f"its steps do not change weights as they do in higher precision: {lost_now}"
    if names := narrowed(before.recording, after.recording):
        return f"{names[0]} would be trained in a narrower dtype"
    if names := learns_less(before.recording, after.recording):
        return f"fewer numbers of {names[0]} learn than before"
    if new := repair.new_findings(before, after):
        return f"the patched program has a finding that it did not have: {new[0]}"
    if finite(before) and not finite(after):
        return "it computes numbers that are not finite"
    return ""


def _still(before: Recording, after: Recording, finding: Finding) -> Finding | None:
    """The same finding of a patched run, None where it is gone. Of several that are called alike, one must be gone."""
    sort = _sort(finding)
    found = [f for f in rules.find(after) if f.severity != "note" and _sort(f) == sort]
    were = Counter(_sort(f) for f in rules.find(before) if f.severity != "note")[sort]
    return found[0] if len(found) >= were and found else None
