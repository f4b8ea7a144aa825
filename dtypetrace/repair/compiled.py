"""Compiled code that does otherwise than the program says: the edits against it, proven by compiling again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from .. import rules
from ..records import Edit, Finding, Place
from ..rules.case import short
from ..rules.compiled_harm import Harm
from ..source import compiling
from ..tables.dtypes import HALF
from ..tables.english import listed, percent, quoted
from ..tables.operators import base
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
    mended: Mended | None = None
    for done, edits in (_as_advised(found), _left_out(before, found)):
        changes = [change for edit in dict.fromkeys(edits) for change in repair.located(edit)]
        if not changes:
            continue
        after = repair.tried(changes, done)
        rejected = ((mended.done, mended.proof.why),) if mended is not None else ()
        mended = Mended(found[0], done, _proof(repair, eager, before, after), changes, after, rejected)
        if mended.proof.proven:
            return mended
    proof = Proof(False, "no edit of the program's own lines is known for it")
    return mended or Mended(found[0], f"By hand: {_as_advised(found)[0]}", proof, [], before)


def _as_advised(found: Sequence[Finding]) -> tuple[str, list[Edit]]:
    """What the findings advise, and its edits."""
    fixes = [f.fix for f in found if f.fix]
    return "; ".join(dict.fromkeys(f.why for f in fixes)), [edit for f in fixes for edit in f.edits]


def _left_out(before: Outcome, found: Sequence[Finding]) -> tuple[str, list[Edit]]:
    """The calls that the findings name, left out of the compiled code; no edits where one of them cannot be."""
    edits: list[Edit | None] = []
    for finding in found:
        born = finding.culprit.origin if finding.culprit is not None else None
        calls: list[tuple[Place, tuple[str, ...]]] = [
            (finding.site, (base(finding.op), finding.module.rpartition(".")[2]))
        ]
        calls += [(born.place, (born.op or "",))] if born is not None else []
        left = (compiling.leaving_out(before.recording.text, place, names) for place, names in calls)
        edits.append(next(filter(None, left), None))
    known = [edit for edit in edits if edit is not None]
    names = listed(list(dict.fromkeys(quoted(edit.before) for edit in known)))
    return f"leave {names} out of the compiled code", known if len(known) == len(edits) else []


def _proof(repair: Repair, eager: Outcome, before: Outcome, after: Outcome) -> Proof:
    """Whether the patched program compiles to what it says, and computes what it computes eagerly; or, where rounding
    makes that another result, one that is as near to float64."""
    if not same_error(before.error, after.error):
        return Proof(False, f"the patched program ends with {after.ending}", 1)
    left = [f for f in rules.find(after.recording) if f.code in CODES and f.severity == "warning"]
    if left:
        return Proof(False, f"{left[0].code} is still found: {left[0].title}", 1)
    allowed, apart, regions = tolerance(after.recording), _apart(eager, after), after.recording.regions
    # what torch has in its cache is worked out again only where it computes in 16 bits
    narrow = [r for r in regions if any(step.dtype in HALF for step in r.steps)]
    if not any(r.graphs for r in regions) and (narrow or not regions and apart is None):
        return Proof(False, "what was compiled in the patched program could not be read", 1)
    if not finite(after) and finite(eager):
        return Proof(False, "compiled again, it computes numbers that are not finite", 1)
    if apart is None and (new := repair.new_findings(before, after)):
        # where the values are those of eager, so are the findings about them
        return Proof(False, f"the patched program has a finding that it did not have: {new[0]}", 1)
    if apart is not None and apart > allowed:
        differ = f"its values differ by {percent(apart)} from those of the program run eagerly"
        harms = [Harm(region) for region in regions]
        if not harms or not all(harm.known and harm.worst is None for harm in harms):
            return Proof(False, differ, 1)
        return Proof(True, f"compiled again, the finding is gone; {differ}, but {harms[0].near()}", 1)
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
