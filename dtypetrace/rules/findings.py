"""What is wrong with that: from refusals to findings, and the judgement of who is out of line.

Each refusal becomes a finding: its operands with their origins, the culprit (``rules.judgement``), the
flow from its birth, the remedy (``rules.remedies``). Findings of one cause are told once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from .. import graph
from ..records import Finding, FlowStep, Operand, Origin, Place, Raised, Reach, Recording, Refused, Witness
from ..source import expressions
from ..tables import refusals
from ..tables.codes import TITLES
from ..tables.dtypes import COUNTERPART, FLOATING
from . import changes, consequences, judgement, no_gradient, plans, ranges, training
from .remedies import remedy, short

_SEVERITY = {"error": 0, "warning": 1, "note": 2}


def find(recording: Recording, ignore: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """All findings of a recording: the one that ended the run first, then by severity and count."""
    told = [refused for refused in recording.refused if refused.left or not _asked_only(refused)]
    healed = any(refused.healed for refused in told)
    if healed:  # what the program handles by itself was none of healing's business
        told = [refused for refused in told if refused.healed or refused.left]
    found = _grouped((judge(recording, refused) for refused in told), healed)
    silent = (
        find(recording)
        for find in (ranges.find, training.find, no_gradient.find, training.lost_changes, plans.find, changes.find)
    )
    found += consequences.left_out(found, chain.from_iterable(silent))
    found = [f for f in found if f.code not in ignore and not _silenced(recording, f)]
    return tuple(
        sorted(found, key=lambda f: (f.exception is None or f.severity != "error", _SEVERITY[f.severity], *_rank(f)))
    )


def _rank(f: Finding) -> tuple[int, ...]:
    """Collisions first, then settings, which are older than what they do; then by reach: what costs a matmul costs most."""
    reach = f.reach or Reach(0, 0, 0)
    return f.kind != "collision", f.kind != "plan", -reach.flops, -reach.bytes, -f.count


def _asked_only(refused: Refused) -> bool:
    """Whether torch merely asked a tensor if it can be an index: it takes no for an answer and looks at other overloads."""
    return refused.op == "index" and refused.aten is None and refused.exception == "TypeError"


def _silenced(recording: Recording, finding: Finding) -> bool:
    """Whether a line of the finding says ``# dtypetrace: ignore[DT101]``: where it was born or where it hurts."""
    places = (finding.site, finding.culprit.origin.place if finding.culprit else graph.NOWHERE)
    frames = {frame for place in places for frame in (*place.stack[:1], place.user_frame) if frame is not None}
    return any(
        finding.code in codes.replace(" ", "").split(",")
        for frame in frames
        for codes in _IGNORE.findall(recording.line(frame.file, frame.line))
    )


_IGNORE = re.compile(r"#\s*dtypetrace:\s*ignore\[([^\]]*)\]")


def cause(origin: Origin, name: str = "") -> tuple:
    """What tells one cause from another: the user's own line of the birth and, below it, the library's function."""
    user, inner = origin.place.user_frame, origin.place.stack[0] if origin.place.stack else None
    if inner is None:
        return (origin.kind, origin.name or name)
    if user is inner or origin.kind in ("parameter", "load"):  # all of a model is made by one line
        return user.file, user.line
    return user.file, user.line, inner.file, inner.function


def _grouped(findings: Iterable[Finding], healed: bool) -> list[Finding]:
    """One finding per cause: the same refusal with the same culprit and origin, counted.

    A run that was healed meets what one cause does again and again, in one call after another: that is told once.
    """
    kept: dict[tuple, Finding] = {}
    for f in findings:
        culprit = f.culprit
        if healed and culprit is not None:
            key = cause(culprit.origin, culprit.name)
        else:
            key = (
                f.code,
                f.kind,
                f.site.stack,
                f.phase,
                culprit and (culprit.origin.kind, culprit.origin.place.stack[:1], culprit.name),
            )
        if key in kept:
            worst = min(kept[key].severity, f.severity, key=_SEVERITY.__getitem__)
            kept[key] = replace(kept[key], count=kept[key].count + f.count, severity=worst)
        else:
            kept[key] = f
    return list(kept.values())


# ---------------------------------------------------------------- one refusal


def judge(recording: Recording, refused: Refused) -> Finding:
    """The finding of one refused call: operands, culprit, flow, remedy."""
    in_line, reason = judgement.in_line(recording, refused)
    chosen = judgement.culprit(refused, in_line)
    # what a lineage is judged against: an index that became floating is wrong by its own cast
    measure = (
        in_line
        if refused.wants in ("agree", "kernel", "other", "fits")
        else chosen.dtype
        if chosen and chosen.device
        else None
    )
    if chosen and (refused.wants == "complex" or chosen.dtype == in_line and chosen.dtype.startswith("complex")):
        measure = COUNTERPART.get(chosen.dtype, measure)  # alone and yet refused for being complex, or for being real
    site = graph.place_of(recording, refused.place)
    operands = tuple(_operand(recording, w, measure, site, refused) for w in refused.witnesses)
    culprit = next((o for o, w in zip(operands, refused.witnesses) if w is chosen), None)
    flow = graph.flow(recording, chosen.step, measure) if chosen else ()
    if chosen is not None:
        meets = FlowStep(site, refused.op, refused.module, chosen.dtype, in_line or chosen.dtype, "value")
        if culprit.dtype.startswith("python") and culprit.origin.place.stack[:1] != site.stack[:1]:
            flow = (FlowStep(culprit.origin.place, "", "", chosen.dtype, chosen.dtype, "value"),)
        flow = (*flow, meets)
    if refused.left or refused.healed:
        severity = "error"
    elif refused.count > 1 and 1 < int(recording.meta.get("steps", 0)) <= refused.count:
        severity = "warning"
    else:
        severity = "note"
    # what an optimizer compares are weights, gradients and its own state, whichever function does it
    code = "DT115" if refused.phase == "optimizer" and refused.wants == "agree" else refused.code
    return Finding(
        code=code,
        kind="collision",
        severity=severity,
        title=TITLES.get(code, "an operation was refused because of a dtype"),
        phase=refused.phase,
        op=refused.op,
        aten=refused.aten,
        module=refused.module,
        count=refused.count,
        predicted=refused.predicted,
        site=site,
        operands=operands,
        culprit=culprit,
        flow=flow,
        fix=remedy(recording, refused, culprit, chosen, flow, in_line, site),
        exception=None if refused.predicted else Raised(refused.exception, refused.message),
        notes=tuple(_notes(refused, culprit, operands, flow, in_line, reason)),
    )


def _operand(recording: Recording, witness: Witness, in_line: str | None, site: Place, refused: Refused) -> Operand:
    name, written, handed = witness.name or witness.argument, "", ""
    if not witness.name and site.stack and not refused.derived:
        frame = site.stack[0]
        if frame.user and witness.passed:
            written = expressions.passed(frame, witness.passed, witness.position)
        elif frame.user:
            written = expressions.argument(frame, refused.op, refused.module, witness.argument, witness.index)
        else:
            node = expressions.operand_node(frame, refused.op, refused.module, witness.argument, witness.index)
            node = expressions.passed_node(frame, witness.passed, witness.position) if witness.passed else node
            made = (
                graph.place_of(recording, recording.ops[witness.producer].place)
                if witness.producer >= 0
                else graph.NOWHERE
            )
            handed = expressions.plain(expressions.handed(site, refused.module, node, made))
            written = handed or expressions.plain(node)
    if witness.dtype.startswith("python"):
        place = graph.scalar_place(site, witness.name)
        name = expressions.written(place.stack[0], witness.name) or name if place.stack else name
        origin = Origin("conversion", name, None, place)
    elif witness.dtype.startswith("numpy"):
        called, place = graph.converted(site)
        name = called or name
        origin = Origin("conversion", name, None, place)
    else:
        origin = graph.origin(recording, witness.step, in_line, witness.name or None)
    return Operand(
        witness.index, name, witness.dtype, witness.shape, witness.device, witness.holder, origin, written, bool(handed)
    )


# ---------------------------------------------------------------- who is out of line


def _notes(
    refused: Refused,
    culprit: Operand | None,
    operands: tuple[Operand, ...],
    flow: tuple[FlowStep, ...],
    in_line: str | None,
    reason: str,
) -> Iterable[str]:
    # operands that are out of line as well, by another birth: each has to be mended
    others = {
        (o.shown, o.dtype, o.origin)
        for o in operands
        if culprit is not None
        and refused.wants in ("agree", "other")
        and o.dtype in FLOATING
        and culprit.dtype != in_line
        and o.dtype != in_line
        and o.origin.place.stack[:1] != culprit.origin.place.stack[:1]
        and o.origin.place.stack
    }
    if (
        reason
        and culprit is not None
        and culprit.dtype != in_line
        and refused.wants not in ("fits", "integer", "bool", "float")
    ):
        yield f"{culprit.shown} is {culprit.dtype}; {reason}"
    for name, dtype, origin in sorted(others, key=lambda o: o[0]):
        yield f"{name} is {dtype} too, since {short(origin.place)}"
    for step in flow:
        if step.how == "attribute":
            yield f"{culprit.shown if culprit else 'it'} took its dtype from {step.via or 'an attribute'}, not from a value"
            break
    if refused.autocast:
        yield f"autocast was on: {refused.autocast}"
    if not refused.witnesses and refused.dtypes:
        yield f"no tensor of it was seen; the message names {refusals.in_words(dict(refused.dtypes))}"
