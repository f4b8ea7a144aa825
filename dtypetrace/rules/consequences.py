"""Where several findings have one cause, the earliest is kept and its consequences are left out or lowered to notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from .. import graph
from ..records import Finding, FlowStep, Frame, Recording, Refused
from ..tables.english import quoted
from ..tables.operators import NAMED_CASTS, tagged
from . import trials
from .case import short
from .collision import Collision
from .silent_findings import tensor_of

_Change = tuple[tuple[Frame, ...], str]
"""A line and an op: of what changes a tensor, the line where that tensor got its dtype."""


@dataclass(frozen=True)
class _Others:
    """The run's other findings: the lines where a collision was born, or where what a write narrows got its dtype, and
    what is broken."""

    silent: tuple[Finding, ...]
    collided: frozenset[tuple[Frame, ...]]
    widened: frozenset[tuple[Frame, ...]]
    """The lines where what a collision refused had widened other tensors."""
    narrowed: frozenset[tuple[Frame, ...]]
    writes: frozenset[_Change]
    """The narrowing writes, and the changes of averages and sums that leave no trace."""
    lost: frozenset[_Change]
    averages: frozenset[_Change]
    """Those of them that do not only add: what an average becomes depends on what it was."""
    divided: frozenset[_Change]
    """The casts in which numbers become zero that a later op divides by."""
    overflowing: frozenset[_Change]
    """The casts in which numbers become infinite."""
    coarse: frozenset[tuple[Frame, ...]]
    """The lines where tensors got a dtype that is too coarse for them."""
    taken: frozenset[tuple[tuple[Frame, ...], tuple[Frame, ...]]]
    """Lines that took the dtype of another tensor, each with the line where that one got it."""

    def harmful(self, code: str, *, phase: str = "", other_than: str = "") -> Finding | None:
        """The first finding of a code that is more than a note; ``phase`` or ``other_than`` restrict it to some
        phases."""
        found = (f for f in self.silent if f.code == code and f.severity != "note")
        return next((f for f in found if f.phase == phase or not phase and f.phase != other_than), None)


_Rule = Callable[[Finding, _Others], bool]


# ---------------------------------------------------------------- what only healing led to


def of_healing(recording: Recording, refused: Refused) -> int:
    """Index of the refusal that healing cast an operand for, if one of the sides here got its dtype from that cast
    alone: without it, this call might not be refused. -1 for none."""
    events = recording.events
    above = {n for w in Collision(recording, refused).sides for n in graph.events_above(recording, w.event)}
    return max((events[n].healed for n in above), default=-1)


def said(recording: Recording, refused: Refused) -> str:
    """The note about such a call, for the finding of the cause."""
    site = short(graph.place_of(recording, refused.place))
    return f"{quoted(refused.op)} ({site}) was refused only after the cast that was inserted for this"


# ---------------------------------------------------------------- left out


def _before_it_was_refused(f: Finding, others: _Others) -> bool:
    """What an operand did before it was refused."""
    return tensor_of(f) in others.collided or f.code == "DT201" and f.site.stack[:1] in others.widened


def _cast_of_a_refusal(f: Finding, others: _Others) -> bool:
    return any(step.how == "cast" and step.place.stack[:1] in others.collided for step in f.flow)


def _rounded_by_a_write(f: Finding, others: _Others) -> bool:
    """Rounding that is caused by a narrowing write."""
    sums = f.code == "DT307" and _change(f) in others.writes and _change(f) not in others.averages
    return sums or f.code == "DT308" and tensor_of(f) in others.narrowed


def _write_to_what_stays(f: Finding, others: _Others) -> bool:
    """A narrowing write that is right by itself, but is lost; or one to an average whose other changes, such as its
    decay, are lost too: they narrow nothing."""
    itself = _change(f) in others.lost and (f.severity == "note" or _change(f) in others.averages)
    return f.code == "DT203" and (itself or any(at == tensor_of(f) and op != f.op for at, op in others.lost))


def _measured_to_stand_still(f: Finding, others: _Others) -> bool:
    """A counter whose dtype says that it will stop, where it was seen to."""
    return f.code == "DT505" and any(at == tensor_of(f) for at, _ in others.lost)


def _tried_in_vain(f: Finding, others: _Others) -> bool:
    """Lost precision that stays when the numbers named are kept wide, where another finding's damage goes: what was
    measured here came from there, by a way that the trial did not follow, such as weights that were changed by it."""
    helps = lambda o: o.tried is not None and o.tried.cures
    mine = f.tried is not None and not f.tried.missing and not f.tried.cures
    return f.code == "DT308" and mine and any(o is not f and o.severity != "note" and helps(o) for o in others.silent)


# ---------------------------------------------------------------- told with their cause


def _starved(f: Finding, others: _Others) -> Finding | None:
    """Weights do not move because their gradients were flushed to zero."""
    stays = f.code in ("DT304", "DT305") and f.phase == "optimizer"
    return others.harmful("DT302", phase="backward") if stays else None


def _made_by_an_infinity(f: Finding, others: _Others) -> Finding | None:
    """Gradients are zero because something was divided by an infinity: those of a step, or of the line that made it."""
    cause = others.harmful("DT301", other_than="optimizer")
    if cause is None or cause is f:
        return None
    here = (f.site.file, f.site.line) == (cause.site.file, cause.site.line) and f.phase == "backward"
    of_step = f.code == "DT305" and (f.phase == "optimizer" or f.site == cause.site)
    return cause if of_step or here and f.code in ("DT302", "DT305") else None


def _written_destroyed(f: Finding, others: _Others) -> Finding | None:
    """A checkpoint has numbers in the dtype of a cast that made many of them zero or infinite."""
    if f.code != "DT408":
        return None
    harmful = (o for o in others.silent if o.code in ("DT301", "DT302") and o.severity != "note")
    return next((o for o in harmful if tensor_of(f) and tensor_of(f) == o.site.stack[:1]), None)


def _decided_there(f: Finding, others: _Others) -> Finding | None:
    """What has the dtype of another tensor is damaged in the same way as that one: one line decided both."""
    return next((o for o in others.silent if o.code == f.code and (tensor_of(f), tensor_of(o)) in others.taken), None)


# ---------------------------------------------------------------- only notes


def _divided_by(f: Finding, others: _Others) -> bool:
    """Numbers that a cast makes zero, where another finding has that cast and the division by them, too."""
    return f.code == "DT302" and f.op in NAMED_CASTS and (f.site.stack[:1], f.op) in others.divided


def _rounded_where_it_overflows(f: Finding, others: _Others) -> bool:
    """Rounding in a cast whose dtype cannot hold the numbers at all: it needs another dtype anyway."""
    return f.code == "DT204" and (f.site.stack[:1], f.op) in others.overflowing


def _beside_what_is_coarse(f: Finding, others: _Others) -> bool:
    """What widened a tensor whose own dtype is too coarse for it."""
    beside = (o.origin.place.stack[:1] for o in f.operands if o is not f.culprit)
    return f.code == "DT201" and f.severity == "note" and any(place in others.coarse for place in beside)


def _of_the_setting(f: Finding, others: _Others) -> bool:
    """What autocast widens, or casts again and again, because it computes in another dtype than the weights have."""
    by_autocast = f.culprit is not None and f.culprit.origin.kind == "autocast"
    widened = f.code == "DT201" and by_autocast
    cast = f.code == "DT205" and bool(f.flow) and f.flow[-1].how == "autocast"
    return f.severity == "note" and (widened or cast) and others.harmful("DT401") is not None


def _speaks_little(f: Finding, others: _Others) -> bool:
    """A finding whose trial says little, beside one of another decision whose trial brings back what was lost: damage
    that is no more than a rounding, beside any that is more; and beside numbers that leave their range by a few
    roundings, what goes only without many of them, or zeros that one call makes, of which no result is known to
    suffer."""
    if f.tried is None or not f.tried.cures:
        return False
    slight, zeros = trials.slight(f.tried), f.kind == "underflow" and f.tried.unit == "spoilt"
    vague = zeros or f.tried.roundings > trials.MOST
    apart = (o for o in others.silent if o.severity != "note" and tensor_of(o) != tensor_of(f))
    cured = [(o.kind, o.tried) for o in apart if o.tried is not None and o.tried.cures and not trials.slight(o.tried)]
    return any(slight or vague and kind == "overflow" and t.roundings <= trials.MOST for kind, t in cured)


_LEFT_OUT: tuple[_Rule, ...] = (
    _before_it_was_refused,
    _cast_of_a_refusal,
    _rounded_by_a_write,
    _write_to_what_stays,
    _measured_to_stand_still,
    _divided_by,
    _rounded_where_it_overflows,
    _beside_what_is_coarse,
    _of_the_setting,
    _tried_in_vain,
)
_TOLD: tuple[Callable[[Finding, _Others], Finding | None], ...] = (
    _starved,
    _made_by_an_infinity,
    _written_destroyed,
    _decided_there,
)


def _takes(recording: Recording) -> Iterable[tuple[tuple[Frame, ...], tuple[Frame, ...]]]:
    """The lines of births and of those from which they took their dtype."""
    line = lambda event: graph.place_of(recording, event.place).stack[:1]
    for event in recording.events:
        yield from ((line(event), line(recording.events[r.event])) for r in event.reads if r.event >= 0)


def left_out(recording: Recording, refused: Iterable[Finding], silent: Iterable[Finding]) -> list[Finding]:
    """The silent findings that have a cause of their own; consequences of another finding are left out, become notes,
    or are told there."""
    found, collisions = tuple(silent), tuple(refused)
    serious = [f for f in found if f.severity != "note"]
    writes = [f for f in serious if f.code == "DT203"]
    lost = [f for f in found if f.code == "DT307"]
    others = _Others(
        found,
        frozenset({tensor_of(f) for f in collisions} - {()}),
        frozenset(s.place.stack[:1] for f in collisions for s in f.flow[:-1] if s.how == "promotion"),
        frozenset({tensor_of(f) for f in writes} - {()}),
        frozenset(map(_change, writes)),
        frozenset(map(_change, lost)),
        frozenset(_change(f) for f in lost if not tagged(f.op, "sum", "adds_at")),
        frozenset((step.place.stack[:1], step.op) for f in serious if f.code == "DT302" for step in _measured(f)),
        frozenset((f.site.stack[:1], f.op) for f in serious if f.code == "DT301"),
        frozenset({tensor_of(f) for f in serious if f.code == "DT204"} - {()}),
        frozenset((at, other) for at, other in _takes(recording) if at != other),
    )
    told: dict[int, list[str]] = {}
    kept: list[Finding] = []
    for f in found:
        cause = next((c for rule in _TOLD if (c := rule(f, others)) is not None), None)
        if cause is not None:
            told.setdefault(id(cause), []).append(f"because of this, {f.title}")
        elif not any(rule(f, others) for rule in _LEFT_OUT):
            kept.append(f)
    kept = [replace(f, notes=(*f.notes, *dict.fromkeys(told.get(id(f), ())))) for f in kept]
    return [replace(f, severity="note") if _speaks_little(f, others) else f for f in kept]


def _measured(f: Finding) -> list[FlowStep]:
    """The steps on a finding's way at which values were measured."""
    return [step for step in f.flow[:-1] if step.how == "value" and step.said]


def _change(f: Finding) -> _Change:
    return tensor_of(f), f.op
