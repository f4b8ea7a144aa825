"""Further strategies: ``dtypetrace fix`` tries them, in the order of ``remedies.FURTHER``, if the best fix does not
repair the program.

Each changes one place on the value's path, from its birth to the refused call and the calls around it. A finding
shows only the two that cast in the refused call, and only as its last choice: of the others, a run shows whether they
are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..graph import NOWHERE
from ..records import Edit, Fix, Frame, Place
from ..source import dictionaries, editing
from ..tables.dtypes import COMPLEX, DTYPES, FLOATING, HALF
from ..tables.english import quoted
from ..tables.operators import tagged
from .advice import advise
from .case import SHORT, Case, short

MOST_FRAMES = 4
"""How many of the program's own calls around a library's value are tried: further out, the value is only a part of
something larger."""


def target(case: Case) -> str | None:
    """The dtype to repair with; None where there is nothing to try."""
    if case.refused.wants == "kernel" or case.refused.code == "DT116" and case.culprit.dtype not in COMPLEX:
        wanted: str | None = "float32"
    else:
        wanted = case.wanted
    # a Python number has no dtype to change; narrowing an average would lose what it accumulates
    if wanted == case.culprit.dtype or case.culprit.dtype.startswith("python") or case.kept_wide:
        return None
    return wanted


def computed_in_float32(case: Case) -> Iterator[Fix]:
    """An operation without a kernel is computed in float32, and its result is cast back."""
    wanted = target(case)
    if wanted is None or case.refused.wants != "kernel":
        return
    casts, back = case.in_fallback(wanted)
    change = f"compute {quoted(case.refused.op)} in {wanted} and cast its result back"
    yield advise(case.site, change, edits=(*casts, *back), kind="cast")


def where_it_widened(case: Case) -> Iterator[Fix]:
    """The value is cast back on the line where the wanted dtype was last widened, if that is not the refused line: what
    else is computed from the widened value would stay wide."""
    wanted, here = target(case), case.site.stack[:1]
    if wanted is None or case.writes_into or any(s.how in ("cast", "attribute") for s in case.flow[1:-1]):
        return
    widened = (s.place for s in case.flow[:-1] if s.how == "promotion" and wanted in s.source.split(" + "))
    for place in reversed([p for p in widened if p.stack and p.stack[0].user and not _same_line(p.stack, here)]):
        edit = editing.at_own_line(case.recording, place, wanted)
        yield _cast(edit, place, wanted, kind="cast")


def _same_line(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> bool:
    return [(f.file, f.line) for f in one[:1]] == [(f.file, f.line) for f in other[:1]]


def on_its_path(case: Case) -> Iterator[Fix]:
    """The value is cast at a step between its birth and the refused call, the last step first."""
    wanted = target(case)
    if wanted is None:
        return
    steps = [s.place for s in case.flow[:-1] if s.how in ("promotion", "cast", "attribute") and s.place.stack]
    for place in reversed(steps):
        edit = editing.at_own_line(case.recording, place, wanted)
        yield _cast(edit, place, wanted, kind="cast")


def where_it_is_complete(case: Case) -> Iterator[Fix]:
    """The value is cast where the program's own line computed it last: what that is computed from stays wide."""
    wanted, place = target(case), case.completed
    if wanted is not None and not case.writes_into and place is not None:
        yield _cast(editing.where_complete(case.recording, place, wanted), place, wanted, kind="cast")


def written_value(case: Case) -> Iterator[Fix]:
    """If the culprit is the destination, the value that is written is cast to its dtype."""
    if target(case) is None or not case.writes_into:
        return
    dtype, refused = case.culprit.dtype, case.refused
    edits = [
        editing.at_call(case.recording, replace(case.taken(w), passed=("", -1)), dtype)
        for w in refused.witnesses
        if w.dtype in FLOATING and w.dtype != dtype and dtype in FLOATING
    ]
    found = tuple(edit for edit in edits if edit is not None)
    change = f"cast what is written into {quoted(case.culprit.shown)} to {dtype} at the call"
    yield advise(case.site, change, edits=found, kind="cast")


def written_in_backward(case: Case) -> Iterator[Fix]:
    """What a hand-written backward writes into a gradient that is made like a tensor of autocast's is cast to its
    dtype, whichever that is: a gradient has the dtype of its tensor."""
    if case.refused.phase != "backward" or case.origin.kind != "autocast" or not case.writes_into:
        return
    into, others = case.witness, (w for w in case.refused.witnesses if w.dtype in FLOATING)
    written = [case.taken(w) for w in others if w.dtype != into.dtype]
    edits = [editing.at_call_like(case.recording, replace(w, passed=("", -1)), into) for w in written]
    found = tuple(edit for edit in edits if edit is not None)
    change = f"cast what is written into {quoted(case.culprit.shown)} to its dtype at the call"
    yield advise(case.site, change, edits=found, kind="cast")


def at_call(case: Case) -> Iterator[Fix]:
    """The operand is cast in the refused call."""
    wanted = target(case)
    if wanted is not None and not case.writes_into:
        reason, others = _uncast_integers(case, wanted)
        change = f"cast {quoted(case.culprit.shown)} to {wanted} at the call"
        edits, named = case.cast_at_call(wanted), case.here if reason else NOWHERE
        yield advise(case.site, change, reason, edits=edits, kind="cast", named=named, others=others)


def _uncast_integers(case: Case, wanted: str) -> tuple[str, tuple[str, ...]]:
    """What was an integer and is wanted as one may be left out of the cast between, which rounds large ones: why the
    cast at the call is right, if it is known, and the alternative."""
    made = case.culprit.dtype
    if wanted in FLOATING or made not in HALF or case.origin.kind != "cast":
        return "", ()
    largest = 2 ** DTYPES[made].digits
    others = [w for w in case.refused.witnesses if w.index != case.witness.index]
    longest = max((size for w in others for size in w.shape), default=0)
    # an index is smaller than what it picks from is long
    if tagged(case.refused.op, "picks") and 0 < longest <= largest:
        below = f"all are below {longest:,}, and {made} holds every integer up to {largest:,}"
        kept = f"this is safe, because the cast at {short(case.here)} changed no index ({below})"
        return kept, (f"leave integers out of the cast at {short(case.here)}",)
    instead = (
        f"if there can be numbers above {largest:,}, leave integers out of the cast at {short(case.here)} instead, "
        f"because {made} rounds such numbers and a later cast cannot bring them back"
    )
    return "", (instead,)


def like_the_other(case: Case) -> Iterator[Fix]:
    """The operand is cast in the refused call to the dtype of the other operand, whichever dtype that is."""
    wanted, witness = target(case), case.witness
    if wanted is None or case.writes_into:
        return
    other = next((w for w in case.refused.witnesses if w.dtype == wanted and w.index != witness.index), None)
    edits = case.cast_like(other) if other is not None else ()
    like = f"{edits[0].change.like}.dtype" if edits else "the dtype of the other operand"
    why = f"cast {quoted(case.culprit.shown)} to {like} at the call"
    yield advise(case.site, why, edits=edits, kind="cast")


def at_callers(case: Case) -> Iterator[Fix]:
    """The value is cast further out, where the program passes it to the refused line."""
    wanted = target(case)
    if wanted is None or case.writes_into:
        return
    for place, edit in case.cast_by_callers(wanted):
        yield advise(place, f"cast {edit.before} to {wanted} where it is passed on", edits=edit, kind="cast")


def loaded_values(case: Case) -> Iterator[Fix]:
    """All floating values of a checkpoint are cast as they are loaded."""
    wanted = target(case)
    if wanted is None or case.origin.kind != "load":
        return
    edit = dictionaries.at_load(case.recording, case.origin.place, wanted)
    yield advise(case.origin.place, f"cast what is loaded to {wanted}", edits=edit, safe=False)


def own_lines(case: Case) -> Iterator[Fix]:
    """The result that one of the program's own lines gets from a library is cast there, the innermost line first."""
    wanted = target(case)
    if wanted is None:
        return
    stack = case.origin.place.stack
    places = [Place(stack[i:]) for i, frame in enumerate(stack) if frame.user][:MOST_FRAMES]
    for place in places:
        edit = editing.at_own_line(case.recording, place, wanted)
        yield _cast(edit, place, wanted, safe=False)


def _cast(edit: Edit | None, place: Place, wanted: str, **how: Any) -> Fix:
    """What an edit casts: its text where that is short, else its line's result."""
    if edit is not None and 0 < len(edit.before) <= SHORT:
        return advise(place, f"cast {quoted(edit.before)} to {wanted}", edits=edit, **how)
    return advise(place, f"at {short(place)}, cast the result to {wanted}", named=place, edits=edit, **how)
