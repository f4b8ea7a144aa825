"""Weights that do not learn in half: the edits that keep them in float32, run one after the other until one is proven.

Nothing is refused in such a program. The findings about what the optimizer's steps did (``rules.training``) say which
weights do not learn, and the same findings of the patched run say whether they do then.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import rules
from ..records import Finding, Recording
from ..rules import wide_weights
from ..source.patch import Change
from .proof import Proof, new_findings
from .runs import Outcome
from .search import Repair, changes_of

CODES = ("DT304", "DT303", "DT301")
"""What keeps weights from learning."""
ENOUGH_STEPS = 4
"""In fewer steps, weights that hardly moved are no reason to change how a program trains; none that moved at all is."""


@dataclass(frozen=True)
class Learning:
    """A patch that was run: what it adds, whether it is proven, and all its changes."""

    done: str
    proof: Proof
    changes: list[Change]


def not_learning(recording: Recording) -> Finding | None:
    """The first serious finding about weights in half that an optimizer's steps do not train."""
    steps = max((u.steps for u in recording.updates), default=0)
    severities = ("error", "warning") if steps >= ENOUGH_STEPS else ("error",)
    found = (f for f in rules.find(recording) if f.code in CODES and f.severity in severities)
    return next((f for f in found if f.fix is not None and f.fix.kind == "plan" and f.culprit is not None), None)


def learning(repair: Repair, before: Outcome) -> Learning | None:
    """Runs each edit that makes the weights float32, until one is proven; sets the patch of the repair to that, else to
    the first that was tried.

    None where all weights learn, or no edit is known. ``before``: the run with the patch that the repair has.
    """
    finding = not_learning(before.recording)
    if finding is None or finding.culprit is None:
        return None
    chosen, nearest, refused = changes_of(repair.problems), None, False
    culprit = finding.culprit
    for candidate in wide_weights.candidates(before.recording, culprit.origin, culprit.dtype, finding.site):
        repair.patch.set(chosen)
        new = [change for edit in candidate.edits for change in repair.located(edit)]
        if len(new) < len(candidate.edits) or candidate.region and not refused:
            continue
        outcome = repair.tried([*chosen, *new], candidate.done)
        refused = refused or outcome.refused
        tried = Learning(candidate.done, _proof(before, outcome, finding), [*chosen, *new])
        if nearest is None or tried.proof.proven:
            nearest = tried
        if tried.proof.proven:
            break
    repair.patch.set(nearest.changes if nearest is not None else chosen)
    return nearest


def _proof(before: Outcome, after: Outcome, finding: Finding) -> Proof:
    """Whether the weights learn after the edit, and nothing else became worse."""
    trained = [u for u in after.recording.updates if u.steps]
    if after.refused and not before.refused:
        op = after.recording.refused[0].op
        return Proof(False, f"with the weights in float32, {op} refuses its operands: the forward needs autocast", 1)
    if after.error is not None and before.error is None:
        return Proof(False, f"the patched program ends with {after.error['type']}", 1)
    if (left := not_learning(after.recording)) is not None:
        return Proof(False, f"weights still do not learn: {left.code}, {left.title}", 1)
    if new := new_findings(before.recording, after.recording):
        return Proof(False, f"the patched program has a finding that it had not: {new[0]}", 1)
    if not trained:
        return Proof(False, "the patched program takes no optimizer step", 1)
    moved = sum(u.moved for u in trained), sum(u.reached for u in trained)
    numbers = f"{moved[0]:,} of the {moved[1]:,} numbers that were looked at and had a gradient moved"
    return Proof(True, f"{finding.code} is gone, nothing is refused, and no finding is new; {numbers}", 1)
