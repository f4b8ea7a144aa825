"""What edits of a remedy change in the recorded run: births, modules, results, operands of the refused call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import graph
from ..foresight import DtypeChange
from ..records import (
    CAST,
    FORWARD,
    LARGEST,
    LOWEST,
    NAMED,
    RECAST,
    SPARED,
    UNCAST,
    Edit,
    Event,
    Fix,
    Frame,
    Input,
    Op,
    Place,
    Witness,
)
from ..tables.dtypes import DTYPES, FLOATING, HALF
from .case import Case


@dataclass(frozen=True)
class Effect:
    """A change of births, modules or results, and what changes in the refused call itself, by index of its operands."""

    change: DtypeChange
    casts: Mapping[int, str] = field(default_factory=dict)
    """The dtypes that operands are cast to."""
    numbers: Mapping[int, float] = field(default_factory=dict)
    """The Python numbers that are written instead."""


def effect_of(case: Case, fix: Fix) -> Effect | None:
    """What a remedy's edits change: operands of the refused call, births at a line, or results of the line's ops."""
    edit = fix.edits[0]
    scaled = case.refused.code == "DT116" and case.culprit.dtype in HALF  # its dtype agrees with all else
    told = edit.change.dtype if edit.change.target == NAMED else ""
    wanted = told or ("float32" if scaled else case.born or case.wanted)
    if fix.kind == "autocast":
        if case.off is not None or case.ran_under is not None or case.refused.phase == "backward":
            return None  # a replay would put every call under autocast, and the others are right
        return Effect(DtypeChange(autocast=case.half))
    if case.origin.op == "set_default_dtype" and fix.place == case.here and wanted is not None:
        return Effect(_of_births(case, dict.fromkeys(_by_default(case), wanted)))
    if fix.place == case.site and fix.place.stack and inside(edit, fix.place.stack[0]):
        return _at_call(case, fix.edits)
    if edit.change.like and edit.change.target in ("", NAMED):
        # equal calls share one record; those before keep their dtype, which what they met had
        return Effect(DtypeChange(), {case.witness.index: edit.change.dtype})
    several = len(fix.edits) > 1 and (scaled or case.origin.kind == "parameter")
    if wanted is not None and (several or scaled and fix.place != case.here):
        made = {n: place_of(case, s.place) for n, s in enumerate(case.recording.events) if s.to == case.culprit.dtype}
        edited = [n for n, p in made.items() if any(inside(e, f) for e in fix.edits for f in p.stack)]
        return Effect(_of_births(case, dict.fromkeys(edited, wanted)))
    if wanted is None or len(fix.edits) > 1 and fix.place != case.site:
        return None
    frame = next(iter(fix.place.stack), None)
    elsewhere = edit.file != fix.place.file  # the literal that decided the dtype stands there
    born, own = case.origin.place.stack, case.origin.place.user_frame
    if case.origin.kind != "parameter":  # a library casts to what the program's line passes to it
        born = born[:1] if own not in born or edit.change.target == CAST else born[: born.index(own) + 1]
        # a library's line casts what any caller gives it; the edit changes one caller's line
        frame = next((f for f in fix.place.stack if f in born and inside(edit, f)), frame)
    if born and case.origin.kind not in ("trained", "computed") and (frame in born or elsewhere):
        made_by = frame if frame is not None and frame in born else born[0]
        events = enumerate(case.recording.events)
        same = {n: s for n, s in events if s.to == case.culprit.dtype and made_by in _decided(case, s)}
        if same:
            return Effect(_of_births(case, _births_after(edit, same, wanted)))
    return _after_expression(case, edit, wanted) if edit.change.target == CAST else None


def _births_after(edit: Edit, same: Mapping[int, Event], wanted: str) -> dict[int, str]:
    """The dtypes of what is born at a line, by event, after an edit of it."""
    cast = {n: s for n, s in same.items() if s.source and s.how == "cast"}
    births = dict.fromkeys(same, wanted)
    if edit.change.target == UNCAST:
        births |= {n: s.source[0] for n, s in cast.items()}
    elif edit.change.target == SPARED:
        births = {n: s.source[0] for n, s in cast.items() if s.source[0] not in FLOATING}
    return births


def place_of(case: Case, number: int) -> Place:
    return graph.place_of(case.recording, number)


def _decided(case: Case, event: Event) -> tuple[Frame, ...]:
    """The lines that decided a dtype: those of the call, and that of NumPy's literal."""
    return (*place_of(case, event.place).stack, *place_of(case, event.told).stack)


def _by_default(case: Case) -> list[int]:
    """The events that took their dtype from the default that was set where the culprit's was, after that was to end."""
    setting = case.here.stack[0]
    taken = ((n, event) for n, event in enumerate(case.recording.events) if event.default >= 0)
    later = ((n, event) for n, event in taken if place_of(case, event.default) == case.here)
    return [n for n, e in later if all(f.function != setting.function for f in place_of(case, e.place).stack)]


def _of_births(case: Case, births: dict[int, str]) -> DtypeChange:
    modules = {p.name: births[p.event] for p in case.recording.parameters if p.event in births}
    w = case.witness
    if w.holder == "parameter" and w.event in births:
        modules |= dict.fromkeys((w.name, f"{case.refused.module}.{w.name.rpartition('.')[2]}"), births[w.event])
    return DtypeChange(births=births, modules=modules)


def inside(edit: Edit, frame: Frame) -> bool:
    return edit.file == frame.file and frame.line <= edit.start[0] <= (frame.end_line or frame.line)


def _after_expression(case: Case, edit: Edit, dtype: str) -> Effect | None:
    """The effect of a cast that is written after an expression, whatever calls it is part of.

    Its value was made by the op that ran last in it on the way to the refused call; the same op counts wherever the
    expression ran.
    """
    recording = case.recording
    if edit in (passed for _, passed in case.cast_by_callers(edit.change.dtype)):
        return Effect(DtypeChange(), {case.witness.index: dtype})
    inside = frozenset(n for n, place in enumerate(recording.places) if any(within(f, edit) for f in place.stack))
    last = {_same(case, recording.ops[n]) for n in _last_in(recording.ops, inside, case.witness.producer)}
    made = (n for n, op in enumerate(recording.ops) if op.place in inside and op.phase in FORWARD)
    results = dict.fromkeys((n for n in made if _same(case, recording.ops[n]) in last), dtype)
    return Effect(DtypeChange(results=results, inside=inside)) if results else None


def within(frame: Frame, edit: Edit) -> bool:
    """Whether a call stands in the text that an edit changes."""
    if frame.file != edit.file or frame.column is None or frame.end_column is None:
        return False
    return edit.start <= (frame.line, frame.column) and (frame.end_line, frame.end_column) <= edit.end


def _same(case: Case, op: Op) -> tuple[str, tuple[Frame, ...]]:
    """What calls of an op have in common wherever the expression that contains them runs."""
    return op.aten, place_of(case, op.place).stack[:1]


def _last_in(ops: Sequence[Op], inside: frozenset[int], producer: int) -> set[int]:
    """Going back from an op to what its operands were made by: the first ops at these places."""

    def on(op: Op) -> list[Input]:
        return [] if op.place in inside else [i for i in op.inputs if i.holder != "parameter"]

    return {n for n in graph.ops_above(ops, [producer], on) if ops[n].place in inside}


def _at_call(case: Case, edits: Sequence[Edit]) -> Effect | None:
    """The operands that edits of the refused call cast, and the dtypes, or the numbers that they replace.

    None where the text does not say which operands those are, and the culprit has that dtype already.
    """
    casts: dict[int, str] = {}
    for edit in edits:
        written = [w.index for w in case.refused.witnesses if _stands_at(case, w, edit)]
        if written and (number := _limit_written(case, edit)) is not None:
            return Effect(DtypeChange(), numbers={written[0]: number})
        if casts and not written:
            continue  # it casts the result
        dtype = cast_to(edit)
        if dtype not in DTYPES or not written and case.witness.dtype == dtype:
            return None
        casts[next(iter(written), case.witness.index)] = dtype
    return Effect(DtypeChange(), casts)


def _limit_written(case: Case, edit: Edit) -> float | None:
    """The value of ``torch.finfo(x.dtype).min`` as an edit writes it, where ``x`` is an operand of the refused call; or
    of a dtype that the edit names."""
    change = edit.change
    if change.target not in (LOWEST, LARGEST):
        return None
    owners = (w.dtype for w in case.refused.witnesses if change.like and _written(case, w) == change.like)
    known = next((DTYPES[dtype] for dtype in (change.dtype, *owners) if dtype in DTYPES), None)
    return known.lowest if known and change.target == LOWEST else known.largest if known else None


def cast_to(edit: Edit) -> str:
    """The dtype that an edit casts to; empty where it does not cast."""
    return edit.change.dtype if edit.change.target in (CAST, RECAST) else ""


def _written(case: Case, w: Witness) -> str:
    """How the refused call writes one of its operands; empty where the text does not show it."""
    node, file = case.taken(w).node(case.recording.text), case.recording.text.parsed(case.site.stack[0].file)
    return file.segment(node) if node is not None and file is not None else ""


def _stands_at(case: Case, w: Witness, edit: Edit) -> bool:
    """Whether an edit replaces just one operand of the refused call."""
    node, file = case.taken(w).node(case.recording.text), case.recording.text.parsed(case.site.stack[0].file)
    return node is not None and file is not None and (file.start(node), file.end(node)) == (edit.start, edit.end)


def born_as(case: Case, place: Place, dtype: str) -> Effect:
    """What changes if everything that got the culprit's dtype at a place is made in another dtype."""
    events = enumerate(case.recording.events)
    born = (n for n, e in events if e.to == case.culprit.dtype and place_of(case, e.place) == place)
    return Effect(_of_births(case, dict.fromkeys(born, dtype)))


# ---------------------------------------------------------------- what an edit does to the text


def casts_a_module(case: Case, edit: Edit) -> bool:
    """Whether an edit casts what a module's constructor made: such an object has attributes of its own."""
    made = [case.origin.place] if case.origin.kind == "parameter" else []
    made += [place_of(case, case.recording.events[p.event].place) for p in case.refused.model if made and p.event >= 0]
    return any(inside(edit, frame) for place in made for frame in place.stack)
