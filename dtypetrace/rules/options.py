"""What else may repair a collision, in words beside the fix: each is tested by the checks that a diff has to pass."""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..foresight import DtypeChange
from ..records import Fix
from ..source import editing
from ..tables.english import quoted
from . import autocast_off, checks, effects
from .advice import advise
from .case import Case, one, short, spell


def others(case: Case) -> tuple[str, ...]:
    """The alternatives that do not depend on where the dtype was born."""
    return (*autocast(case), *at_site(case))


# ---------------------------------------------------------------- in the call


def at_site(case: Case) -> tuple[str, ...]:
    """A cast in the refused call, with its disadvantage; none where something objects."""
    if not case.passed and not (case.reached and case.culprit.handed) or case.wanted is None:
        return ()
    edits = case.cast_at_call(case.wanted)
    named = case.culprit.written or case.culprit.holder or case.witness.name
    if not named and not edits:
        return ()  # a container passes it on: the line shows no such operand
    effect = effects.Effect(DtypeChange(), {case.witness.index: case.wanted})
    if checks.objection(case, advise(case.site, "", edits=edits, kind="cast")) or checks.objection_to(case, effect):
        return ()
    return tuple(filter(None, (_at_site(case),)))


def _at_site(case: Case) -> str:
    refused, culprit = case.refused, case.culprit
    writes = refused.op == "setitem" or refused.op.endswith("_")
    if refused.code == "DT107" and case.witness.argument == "self" and writes:
        stays = f"keep {quoted(culprit.shown)} in {culprit.dtype}"
        return f"{stays}, and cast what is written into it to {culprit.dtype} ({short(case.site)})"
    if case.writes_into:  # what the call writes would go into the cast copy
        return ""
    if culprit.holder not in ("parameter", "buffer") or not refused.module:
        there = f"at the call ({short(case.site)})"
        only = "" if checks.other_modules(case) else ", which fixes only this call"
        return f"cast {quoted(culprit.shown)} to {case.wanted} {there}{only}"
    if case.origin.kind in ("parameter", "load"):
        return ""
    whole = all(p.dtype == culprit.dtype for p in refused.model)  # then casting one layer is not enough
    scope = refused.module.partition(".")[0] if whole else refused.module
    return f"cast all of {scope} to {case.wanted} after the model is made"


# ---------------------------------------------------------------- where it was cast


def uncast(case: Case) -> tuple[str, ...]:
    """The cast left out that decided the dtype, where that gives a dtype that the call takes."""
    return ("remove this cast",) if case.origin.kind == "cast" and _without_cast(case) else ()


def needless(case: Case) -> Iterator[Fix]:
    """The cast left out of what had the right dtype already, where a variable names the other one for more than it."""
    before = _without_cast(case)
    if case.origin.kind != "cast" or before != case.wanted or not editing.names_variable(case.recording, case.here):
        return
    edits = one(editing.uncast(case.recording, case.here))
    cast = next((edit.after for edit in edits if edit.after), case.culprit.shown)
    why = f"without it, {quoted(cast)} stays {before}"
    yield advise(case.here, "leave this cast out", why, edits=edits, safe=True, others=others(case))


def _without_cast(case: Case) -> str:
    """The dtype before the cast, if the refused call takes it; empty where the cast changed nothing."""
    recording = case.recording
    here = [e for e in recording.events if e.how == "cast" and graph.place_of(recording, e.place) == case.here]
    sources = {dtype for e in here for dtype in e.source}
    if len(sources) != 1 or case.culprit.dtype in sources:
        return ""
    source = sources.pop()
    effect = effects.born_as(case, case.here, source)
    return "" if checks.objection_to(case, effect) else source


# ---------------------------------------------------------------- under autocast


def autocast(case: Case) -> tuple[str, ...]:
    """The autocast region that would repair it; none where autocast would not.

    Where trained weights meet half precision, autocast computes in half and keeps the weights in float32. A half weight
    has a resolution of 2**-8 or 2**-11 of its size; an update smaller than half of that is lost.
    """
    weight, half = next((w for w in case.refused.witnesses if w.trained), None), case.half
    if weight is None or case.refused.autocast or not half:
        return ()
    region = f'torch.autocast("{weight.device.partition(":")[0]}", dtype={spell(half)})'
    if weight.dtype == half:
        why = f"because {weight.dtype} weights lose small updates"
        return (f"use float32 for the weights that you train, {why}, and run the forward under {region}",)
    if _half_elsewhere(case, half):
        return ()
    return (f"run this under {region}, which leaves the trained weights in float32",)


def _half_elsewhere(case: Case, half: str) -> bool:
    """Whether a float32 weight is among weights that are trained in half precision, or was half in this call before."""
    if any(p.trained and p.dtype == half for p in case.refused.model):
        return True
    same = (o for o in autocast_off.earlier(case.recording, case.refused) if not o.autocast)
    return any(i.holder == "parameter" and i.dtype == half for o in same for i in o.inputs)
