"""Compiled code that does otherwise than the program says: the edits against it, proven by compiling again."""

from __future__ import annotations

import math
from functools import partial

from .. import rules
from ..records import Edit
from ..rules.case import short
from ..tables.english import percent
from .mends import Mended
from .proof import Proof, evidence, finite, tolerance
from .runs import Outcome, same_error
from .search import Repair

CODES = ("DT206", "DT207", "DT406")


def as_compiled(repair: Repair, eager: Outcome) -> Mended | None:
    """Runs the program once more with its functions compiled, and again with the edits that its findings propose.

    None where nothing was compiled, or the compiled code does as the program says. ``eager``: the run in which compiled
    functions ran eagerly.
    """
    if eager.recording.meta.get("compiled") != "eager" or eager.error is not None:
        return None
    repair.run = partial(repair.run, compiled=True)
    before = repair.tried((), "with its functions compiled, as by itself")
    found = [f for f in rules.find(before.recording) if f.code in CODES and f.severity == "warning" and f.fix]
    if not found:
        return None
    for finding in found:
        repair.say(f"{finding.code}: {finding.title} ({short(finding.site)})")
    advice = "; ".join(dict.fromkeys(f.fix.why for f in found if f.fix))
    edits: dict[Edit, None] = dict.fromkeys(e for f in found if f.fix for e in f.fix.edits)
    changes = [change for edit in edits for change in repair.located(edit)]
    if not changes:
        proof = Proof(False, "no edit of the program's own lines is known for it")
        return Mended(found[0], f"By hand: {advice}", proof, [], before)
    after = repair.tried(changes, advice)
    return Mended(found[0], advice, _proof(repair, eager, before, after), changes, after)


def _proof(repair: Repair, eager: Outcome, before: Outcome, after: Outcome) -> Proof:
    """Whether the patched program compiles to what it says, and computes what it computes eagerly."""
    if not same_error(before.error, after.error):
        return Proof(False, f"the patched program ends with {after.ending}", 1)
    left = [f for f in rules.find(after.recording) if f.code in CODES and f.severity == "warning"]
    if left:
        return Proof(False, f"{left[0].code} is still found: {left[0].title}", 1)
    if new := repair.new_findings(before, after):
        return Proof(False, f"the patched program has a finding that it did not have: {new[0]}", 1)
    if not any(r.graphs for r in after.recording.regions):
        return Proof(False, "what was compiled in the patched program could not be read", 1)
    if not finite(after) and finite(eager):
        return Proof(False, "compiled again, it computes numbers that are not finite", 1)
    allowed, apart = tolerance(after.recording), _apart(eager, after)
    if apart is not None and apart > allowed:
        return Proof(False, f"its values differ by {percent(apart)} from those of the program run eagerly", 1)
    was = _apart(eager, before)
    compared = ""
    if apart is not None:
        near = f"are within {percent(apart)} of" if apart else "equal"
        compared = f"; its values {near} those of the program run eagerly"
        compared += (
            f" (before, {percent(was)} away)" if was and math.isfinite(was) else " (before, not finite)" if was else ""
        )
    return Proof(True, f"compiled again, the finding is gone{compared}", 1)


def _apart(one: Outcome, other: Outcome) -> float | None:
    return max((e.apart for e in evidence(one, other)), default=None)
