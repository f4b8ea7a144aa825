"""Weights that do not learn in half: the edits that keep them in float32, run one after the other until one is proven.

Nothing is refused in such a program. The findings about what the optimizer's steps did (``rules.training``) say which
weights do not learn, and the same findings of the patched run say whether they do then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from .. import graph, rules
from ..records import Finding, Recording
from ..rules import wide_weights
from ..rules.lost_steps import lost_steps
from ..rules.training import in_few_steps
from ..source.patch import Change
from . import steps
from .proof import Proof
from .runs import Outcome, same_error
from .search import Repair, changes_of

CODES = ("DT304", "DT303", "DT301")
"""What keeps weights from learning."""
UNSCALED = ("DT404", "DT302")
"""What a loss scaler prevents: gradients that vanish in float16 on their way back."""


@dataclass(frozen=True)
class Learning:
    """A patch that was run: what it adds, whether it is proven, and all its changes."""

    done: str
    proof: Proof
    changes: list[Change]
    adapters: bool = False
    """Whether it was seen that all adapters learn with it."""
    ending: str = ""
    """How the patched program ended, in words."""


def not_learning(recording: Recording) -> Finding | None:
    """The first serious finding about weights in half that an optimizer's steps do not train."""
    serious = (f for f in rules.find(recording) if f.code in CODES and f.severity != "note")
    found = (f for f in serious if not in_few_steps(recording, f))
    return next((f for f in found if f.fix is not None and f.fix.kind == "plan" and f.culprit is not None), None)


_NONE_KNOWN = "no edit of the program's own lines is known for it"
_WHY_NONE = {
    "DT402": "you choose which modules get adapters, and how large the adapters are",
    "DT403": "fix moves no lines; before you move this line, check that no line up to its new place uses the optimizer",
}


def _first(codes: tuple[str, ...], recording: Recording) -> Finding | None:
    """The first serious finding about settings."""
    found = (f for f in rules.find(recording) if f.code in codes and f.severity in ("error", "warning"))
    return next((f for f in found if f.fix is not None and f.fix.kind == "plan"), None)


def learning(repair: Repair, before: Outcome) -> Learning | None:
    """Runs each edit that may let the weights learn, until one is proven; sets the patch of the repair to that, else to
    the first that was tried.

    None where all weights learn. ``before``: the run with the patch that the repair has.
    """
    for trouble, edits in MENDS:
        finding = trouble(before.recording)
        if finding is not None:
            found = edits(before.recording, finding)
            if found:
                repair.say(f"{finding.code}: {finding.title}")
            tried = _first_proven(repair, before, _Mend(finding, trouble), found)
            return tried or _in_words(finding)
    return None


def _in_words(finding: Finding) -> Learning:
    """What is to be done by hand, where no edit could be tried."""
    fix = finding.fix
    advice = "; ".join((fix.why, *fix.lines)) if fix is not None else ""
    why = _WHY_NONE.get(finding.code, _NONE_KNOWN)
    return Learning(f"{finding.code}: {finding.title}. By hand: {advice}", Proof(False, why), [])


def _widened(recording: Recording, finding: Finding) -> list[wide_weights.TrainingEdits]:
    culprit = finding.culprit
    if culprit is None:
        return []
    return wide_weights.candidates(recording, culprit.origin, culprit.dtype, finding.site)


def _scaled(recording: Recording, finding: Finding) -> list[wide_weights.TrainingEdits]:
    step = next((u.place for u in recording.updates if u.place >= 0), -1)
    return wide_weights.scaling(recording, graph.place_of(recording, step)) if step >= 0 else []


def _said(recording: Recording, finding: Finding) -> list[wide_weights.TrainingEdits]:
    edits = finding.fix.by_hand if finding.fix is not None else ()
    return [wide_weights.TrainingEdits.of(*edits)] if edits else []


Trouble = Callable[[Recording], Finding | None]
MENDS: tuple[tuple[Trouble, Callable[[Recording, Finding], list[wide_weights.TrainingEdits]]], ...] = (
    (not_learning, _widened),
    (partial(_first, UNSCALED), _scaled),
    (partial(_first, ("DT401",)), _said),
    (partial(_first, ("DT501",)), _said),
    (partial(_first, tuple(_WHY_NONE)), _said),
)
"""What keeps weights from learning as they should, and the edits against it; the first that is found is mended."""


@dataclass(frozen=True)
class _Mend:
    """What is mended, and how it is found again."""

    finding: Finding
    trouble: Trouble


def _first_proven(
    repair: Repair, before: Outcome, mend: _Mend, edits: Iterable[wide_weights.TrainingEdits]
) -> Learning | None:
    chosen, refused = changes_of(repair.problems), False
    nearest: tuple[Learning, Outcome] | None = None
    for candidate in edits:
        new = _located(repair, chosen, candidate)
        if not new or candidate.region and not refused:
            continue
        outcome = repair.tried([*chosen, *new], candidate.done)
        refused = refused or outcome.refused
        tried = _tried(repair, before, outcome, mend, candidate.done, [*chosen, *new])
        if nearest is None or tried.proof.proven:
            nearest = tried, outcome
        if tried.proof.proven:
            break
        if (scaled := _scaled_too(repair, before, mend, tried, outcome)) is not None:
            nearest = scaled, outcome
            break
    found = nearest[0] if nearest is not None else None
    repair.patch.set(found.changes if found is not None else chosen)
    return found


def _located(repair: Repair, chosen: list[Change], candidate: wide_weights.TrainingEdits) -> list[Change]:
    """The changes of a candidate, beside those that are chosen; none unless all its edits fit."""
    repair.patch.set(chosen)
    new = [change for edit in candidate.edits for change in repair.located(edit)]
    fit = len(new) == len(candidate.edits) and repair.patch.set((*chosen, *new)) == (*chosen, *new)
    return new if fit else []


def _scaled_too(repair: Repair, before: Outcome, mend: _Mend, tried: Learning, outcome: Outcome) -> Learning | None:
    """The same edits with a loss scaler, if they are proven with it: for gradients that vanish in float16."""
    if outcome.refused or outcome.error is not None or "float16" not in _computed(outcome.recording):
        return None
    for candidate in _scaled(outcome.recording, mend.finding):
        new = _located(repair, tried.changes, candidate)
        if new:
            done = f"{tried.done}; {candidate.done}"
            changes = [*tried.changes, *new]
            again = _tried(repair, before, repair.tried(changes, done), mend, done, changes)
            if again.proof.proven:
                return again
    return None


def _tried(
    repair: Repair, before: Outcome, outcome: Outcome, mend: _Mend, done: str, changes: list[Change]
) -> Learning:
    measured = outcome.adapters
    learn = measured is not None and all(found.name == "healthy" for found in measured.mechanisms.values())
    return Learning(done, _proof(repair, before, outcome, mend), changes, adapters=learn, ending=outcome.ending)


def _computed(recording: Recording) -> set[str]:
    return {dtype for op in recording.ops for dtype in op.outputs}


def _proof(repair: Repair, before: Outcome, after: Outcome, mend: _Mend) -> Proof:
    """Whether the weights learn after the edit, and nothing else became worse."""
    trained = [u for u in after.recording.updates if u.steps]
    if after.refused and not before.refused:
        op = after.recording.refused[0].op
        return Proof(False, f"{op} then refuses its operands", 1)
    if after.error is not None and not same_error(before.error, after.error):
        return Proof(False, f"the patched program ends with {after.error['type']}", 1)
    if (left := mend.trouble(after.recording)) is not None:
        return Proof(False, f"{left.code} is still found: {left.title}", 1)
    if lost := lost_steps(after.recording):
        name, why = next(iter(lost.items()))
        return Proof(False, f"its steps still do not change weights as they do in higher precision: {name}: {why}", 1)
    if new := repair.new_findings(before, after):
        return Proof(False, f"the patched program has a finding that it did not have: {new[0]}", 1)
    if not trained:
        return Proof(False, "the patched program takes no optimizer step", 1)
    moved = sum(u.moved for u in trained), sum(u.reached for u in trained)
    arrived = "all" if moved[0] == moved[1] else f"{moved[0]:,}"
    numbers = f"of the {moved[1]:,} checked numbers whose gradient is not zero, {arrived} moved"
    compared = "".join(f"; {text}" for text in (numbers, steps.said(after.recording)) if text)
    return Proof(True, f"{mend.finding.code} is gone, nothing is refused, and there is no new finding{compared}", 1)
