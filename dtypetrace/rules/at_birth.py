"""Remedies where a dtype was born: it was an oversight there, or everything made from it should change."""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..records import CAST, Edit, Fix, Place
from ..source import defaults, dictionaries, dtype_names, editing, expressions, operands, optimizers, regions
from ..tables.dtypes import FLOATING, HALF, wider
from ..tables.english import quoted
from . import alternatives, autocast_off, checks, dataflow_paths
from .advice import advise
from .at_use import birth_words
from .case import SHORT, Case, cast_words, one, short, spell


def unknown(case: Case) -> Iterator[Fix]:
    """Where the run shows no dtype that would work, the words say so."""
    if not case.disagrees:
        refuses = f"{quoted(case.refused.op)} refuses {case.culprit.dtype}"
        yield advise(case.here, "choose another dtype here", refuses, others=alternatives.others(case))


def leaves_autocast(case: Case) -> Iterator[Fix]:
    """What autocast made is cast where it leaves the region, else where it is used."""
    body = regions.body(case.recording.text, case.origin.place) if case.origin.kind == "autocast" else None
    if body is None or not case.disagrees or case.born is None:
        return
    own = body == case.origin.place or editing.assigns(case.recording, body, case.culprit.written)
    edit = editing.at_birth(case.recording, "autocast", body, case.born) if own else None
    at_call = case.cast_at_call(case.born) if edit is None and case.passed and not case.writes_into else ()
    if at_call:
        name = quoted(case.culprit.shown)
        made = f"autocast made {name} {case.culprit.dtype} at {short(case.here)}"
        yield advise(
            case.site,
            f"cast {name} to {case.born} here",
            made,
            edits=at_call,
            kind="cast",
            others=(birth_words(case.culprit, case.born),),
        )
        return
    yield advise(body, birth_words(case.culprit, case.born), edits=edit, safe=True, others=alternatives.others(case))


def default_dtype(case: Case) -> Iterator[Fix]:
    """A default dtype set by the program affects all of it: the words say so, and the value is cast in the call."""
    if case.origin.op != "set_default_dtype" or not case.disagrees or case.born is None:
        return
    # the step after the setting is the factory that used the default; the last step is the refused call
    made = case.flow[1] if len(case.flow) > 2 else None
    alone = (f"give {made.op}() dtype={spell(case.born)} ({short(made.place)})",) if made else ()
    why = f"leave the default dtype alone here, or make it {case.born}"
    yield from _skipped(case, made.place if made else case.site, alone)
    edits = case.cast_at_call(case.born) if case.passed and not case.writes_into else ()
    if edits:
        taken, dtype = short(made.place) if made else "this line", case.culprit.dtype
        words = f"{short(case.here)} set the default dtype to {dtype}, and it was still {dtype} at {taken}"
        back = f"set the default dtype back to {case.born} before {taken}"
        yield advise(
            case.site,
            f"cast {quoted(case.culprit.shown)} to {case.born} here",
            words,
            edits=edits,
            kind="cast",
            others=(back, *alone),
        )
    yield from _set_back(case, made.place if made else case.site, alone)
    if not edits:
        yield advise(case.here, why, others=(*alone, *alternatives.others(case)))


def _skipped(case: Case, used: Place, alternatives: tuple[str, ...]) -> Iterator[Fix]:
    """An error can skip the line that sets the default back: the program wants that line to run, so it always shall."""
    if case.born is None or not _has_ended(case.here, used):
        return
    found = defaults.skipped(case.recording.text, case.here, case.born)
    if found is not None and found.edits:
        why = f"an error ended {found.function}() before that line, so the default dtype stayed {case.culprit.dtype}"
        cast = f"cast {quoted(case.culprit.shown)} to {case.born} at the call ({short(case.site)})"
        change = f"put line {found.line} into a `finally`"
        yield advise(case.here, change, why, edits=found.edits, others=(*alternatives, cast))


def _has_ended(setting: Place, used: Place) -> bool:
    """Whether the function of a setting was left before its default was used."""
    own = setting.stack[0]
    return all((f.file, f.function) != (own.file, own.function) for f in used.stack)


def _set_back(case: Case, used: Place, alternatives: tuple[str, ...]) -> Iterator[Fix]:
    """Torch's own default is set back where the function that changed it ends, if the default is used after that."""
    if case.born != "float32" or not _has_ended(case.here, used):
        return
    found = defaults.leak(case.recording.text, case.here, case.born)
    if found is not None:
        change = f"set the default dtype back at line {found.line}, where {found.function}() ends"
        why = f"it sets the default dtype to {case.culprit.dtype} at {short(case.here)}"
        yield advise(case.here, change, why, edits=found.edits, others=alternatives)


def library_value(case: Case) -> Iterator[Fix]:
    """A library is not the program's to edit: its value is cast where the program's own line gets it."""
    place = case.origin.place
    inside = bool(place.stack) and not place.stack[0].user and place.user_frame is not place.stack[0]
    if case.origin.kind == "worker" or not inside or not case.disagrees or case.born is None:
        return
    own, wanted = editing.from_user(place), case.born
    called = expressions.called(case.recording.text, place)
    if own.stack[0] in case.site.stack and not case.ran_before:
        return  # the library's call is refused before it returns: there is no value to cast
    if case.origin.kind == "cast" and (edit := editing.at_birth(case.recording, "cast", own, wanted)) is not None:
        # the library only passed on the cast that the program made
        yield advise(own, birth_words(case.culprit, wanted), edits=edit, others=alternatives.others(case))
        return
    if case.origin.op == "from_pretrained":
        edit = editing.dtype_keyword(case.recording, own, wanted)
        why = f"load it as {wanted}, by the dtype argument of {called}(), or cast it after loading"
        yield advise(own, why, edits=edit, others=alternatives.others(case))
        return
    a_class = called.rpartition(".")[2][:1].isupper()  # it makes the module, or an object that holds the tensor
    if case.origin.kind == "parameter":
        edit = editing.at_birth(case.recording, "parameter", own, wanted) if a_class else None
        given = f"what {called}() makes"
    else:
        own, edit = _result(case, own, wanted)
        given = f"what is taken from {called}()" if a_class else f"the result of {called}()"
    why = f"cast {given} to {wanted} here"
    if edit is None and editing.stands_alone(case.recording, own):
        why = f"let {called}() make it {wanted}, by the arguments that it gets here"
    yield advise(own, why, edits=edit, others=alternatives.others(case))


def _result(case: Case, own: Place, wanted: str) -> tuple[Place, Edit | None]:
    """The place where the program gets a library's value, and the edit that casts it there."""
    out = dataflow_paths.handed_out(case.recording, case.origin.place, case.culprit.dtype, case.witness.producer)
    if not out.stack and own.stack and any(editing.assigns(case.recording, own, name) for name in _names(case)):
        out = own
    edit = editing.at_widening(case.recording, out, wanted) if out.stack else None
    return (out, edit) if edit is not None else (own, None)


def _names(case: Case) -> list[str]:
    """How the program writes the value where it first uses it. If the value is a tensor there, it is also one where
    that name is assigned."""
    steps = (s.place.stack[0] for s in case.flow[1:-1] if s.how == "promotion" and s.place.stack)
    used = next((frame for frame in steps if frame.user), None)
    if used is not None:
        return operands.written_operands(case.recording.text, used)
    return [case.culprit.written] if case.culprit.handed else []


def before_optimizer(case: Case) -> Iterator[Fix]:
    """Weights that were cast after their optimizer's state was made: the cast is left out where everything else runs
    without it, else the order of the two must change; in words."""
    refused, recording = case.refused, case.recording
    if refused.phase != "optimizer" or refused.wants != "agree" or case.origin.kind != "cast" or not case.disagrees:
        return
    cast = (p.event for p in refused.model or recording.parameters if p.event >= 0)
    if not any(graph.place_of(recording, recording.events[event].place) == case.here for event in cast):
        return
    change = "leave this cast out, or cast before the optimizer is made"
    why = "its state keeps the dtype that the weights had"
    fix = advise(case.here, change, why, edits=editing.uncast(recording, case.here))
    yield fix if not checks.objection(case, fix) else advise(case.here, change, why)


def restored_state(case: Case) -> Iterator[Fix]:
    """An optimizer's state that its load_state_dict() cast is cast back after it; in words."""
    call = expressions.own_call(case.recording.text, case.here) if case.refused.phase == "optimizer" else None
    if call is None or case.origin.kind != "cast" or not case.disagrees or case.born is None:
        return
    if expressions.last_part(call[1].func) == "load_state_dict":
        name = quoted(case.culprit.shown)
        why = "load_state_dict() gives an optimizer's state the dtype of its weights"
        yield advise(case.here, f"cast {name} to {case.born} after this", why, others=alternatives.others(case))


def cast_of_all(case: Case) -> Iterator[Fix]:
    """A cast of everything in a batch or a checkpoint leaves what is not floating alone."""
    here = graph.place_of(case.recording, case.recording.events[case.written].place) if case.written >= 0 else case.here
    if case.origin.kind != "cast" and case.written < 0 or not case.disagrees:
        return
    events = [e for e in case.recording.events if graph.place_of(case.recording, e.place) == here]
    sources = {dtype for e in events if e.how == "cast" for dtype in e.source}
    if case.wanted not in sources - FLOATING or not sources & FLOATING:
        return
    if edit := editing.spared(case.recording, here):
        change = f"leave {case.wanted} tensors out of this cast"
        yield advise(here, change, edits=edit, others=alternatives.others(case))


def ready_table(case: Case) -> Iterator[Fix]:
    """A table that needs its precision while it is computed is cast when it is complete, before it meets other
    tensors."""
    if not case.disagrees or not case.narrows or case.born is None:
        return
    # a whole table in 16 bits is too coarse for the numbers that are taken from it one by one
    whole = case.born not in HALF
    ready = dataflow_paths.tables(case.recording, case.origin.place, case.culprit.dtype, numbers=whole)
    edits = editing.at_results(case.recording, ready, case.born)
    if edits:
        narrow = f"compute in {case.born} from {short(case.here)} on, if its range and precision are enough"
        place = graph.place_of(case.recording, case.recording.ops[ready[0]].place)
        yield advise(place, cast_words(edits, case.born), edits=edits, kind="cast", others=(narrow,))


def like_what_it_meets(case: Case) -> Iterator[Fix]:
    """What a function makes to meet another tensor is made in its dtype, whichever that is, where another call has
    another one: what other processes send, what is computed with autocast and without."""
    if not case.disagrees or case.wanted is None or not case.site.stack:
        return
    if case.verdict.principle != "what is sent" and not _met_alike(case):
        return
    edit = editing.at_birth(case.recording, case.origin.kind, case.here, case.wanted)
    other = next((w for w in case.refused.witnesses if w.dtype == case.wanted), None)
    node = case.taken(other).node(case.recording.text) if other is not None else None
    name = expressions.dotted(node) if node is not None else None
    if edit is not None and name:
        like = dtype_names.as_dtype_of(case.recording, edit, case.here.stack[0], name, case.site.stack[0])
        made, others = quoted(case.culprit.shown), alternatives.others(case)
        yield advise(case.here, f"make {made} in the dtype of {quoted(name)}", edits=one(like), others=others)


def _met_alike(case: Case) -> bool:
    """Whether the refused line ran before where all that it takes had the culprit's dtype."""
    ops = autocast_off.earlier(case.recording, case.refused)
    floating = ([i.dtype for i in op.inputs if i.dtype in FLOATING] for op in ops)
    return any(len(dtypes) > 1 and set(dtypes) == {case.culprit.dtype} for dtypes in floating)


def birth(case: Case) -> Iterator[Fix]:
    """A dtype that was an oversight is changed where it was born."""
    if not case.disagrees or case.born is None:
        return
    kind = case.origin.kind
    if kind == "load" and dictionaries.loads_state(case.recording, case.here):
        edit = dictionaries.at_load(case.recording, case.here, case.born)
    else:
        edit = editing.at_birth(case.recording, kind, case.here, case.born)
        if kind == "load" and case.culprit.holder is not None and edit is not None and edit.change.target == CAST:
            edit = None  # what is loaded for a module may be a dictionary, which has no cast
    words = birth_words(case.culprit, case.born)
    if edit is None and kind == "conversion" and (taken := _taken(case)).stack[:1] != case.here.stack[:1]:
        edit = editing.at_birth(case.recording, kind, taken, case.born)
        yield advise(taken, f"cast the array to {case.born} where torch takes it", edits=edit, kind="cast")
        return
    appended = edit is None or edit.change.target == CAST
    if kind == "cast" and appended and wider(case.born, case.culprit.dtype):
        edit = editing.uncast(
            case.recording, case.here
        )  # a second cast would not bring back what the first rounds away
        words = "leave this cast out" if edit is not None else words
    if kind == "input":
        edit = _passed_in(case)
    if kind == "load" and case.culprit.holder not in ("parameter", "buffer"):
        yield from _loaded_state(case)
        words = f"cast the loaded tensors to {case.born}"
    if edit is not None and kind == "promotion" and len(edit.before) <= SHORT:
        words = f"cast {quoted(edit.before)} to {case.born} where it is computed"
    if edit is not None and kind == "factory" and edit.change.target == CAST:
        words = cast_words((edit,), case.born)  # the factory is a library's, and its call takes no dtype
    others = (*alternatives.uncast(case), *alternatives.others(case))
    if edit is not None and len(edits := (edit, *_made_beside(case, edit))) > 1:
        many = f"create these modules in {case.born}, or cast them with .to({spell(case.born)}) after they are made"
        yield advise(case.here, many, edits=edits, safe=True, others=others)
    if edit is not None and len(edits := (edit, *_converted_beside(case, edit))) > 1:
        yield advise(case.here, f"cast what this line converts to {case.born}", edits=edits, safe=True, others=others)
    yield advise(case.here, words, edits=edit, safe=True, others=others)


def _converted_beside(case: Case, edit: Edit) -> tuple[Edit, ...]:
    """The same edit of what else the line converts from arrays of NumPy's default dtype, such as a batch's targets: it
    would meet the rest next, and widen it."""
    frame, recording = case.here.stack[0], case.recording
    if case.origin.kind != "conversion" or case.culprit.dtype != "float64" or case.born != "float32":
        return ()
    found = {edit.start: edit}
    for event in recording.events:
        place = graph.place_of(recording, event.place)
        same = (event.how, event.to, event.op) == ("conversion", case.culprit.dtype, case.origin.op) and place.stack
        if same and (place.stack[0].file, place.stack[0].line) == (frame.file, frame.line):
            more = editing.at_birth(recording, "conversion", place, case.born)
            found.update({more.start: more} if more is not None and more.start not in found else {})
    return tuple(found.values())[1:]


def _taken(case: Case) -> Place:
    """Where torch took the array that the culprit's dtype comes from."""
    line = graph.lineage(case.recording, case.witness.event, case.verdict.expected)
    return graph.place_of(case.recording, line.root.place) if line is not None else case.here


def _made_beside(case: Case, edit: Edit) -> tuple[Edit, ...]:
    """The same edit of what else the module's constructor made in the culprit's dtype without naming it: it would be
    refused next."""
    frame, born = case.here.stack[0], case.born
    if (
        case.origin.kind != "parameter"
        or case.culprit.holder != "parameter"
        or frame.function.rpartition(".")[2] != "__init__"
        or born is None
    ):
        return ()
    found = {edit.start: edit}
    for p in case.refused.model:
        event = case.recording.events[p.event] if p.event >= 0 and p.dtype == case.culprit.dtype else None
        if event is None or event.how != "parameter" or event.explicit or event.default >= 0:
            continue
        own = editing.from_user(graph.place_of(case.recording, event.place))
        same = own.stack and (own.stack[0].file, own.stack[0].function) == (frame.file, frame.function)
        if not same or own.stack[1:] != case.here.stack[1:]:
            continue
        more = editing.at_birth(case.recording, "parameter", own, born)
        if more is not None:
            found.setdefault(more.start, more)
    return tuple(found.values())[1:]


def _passed_in(case: Case) -> Edit | None:
    """The edit that casts what the program passes in on the line where it was first seen."""
    callers = case.cast_by_callers(case.born or "")
    return next((edit for place, edit in callers if place.stack[:1] == case.here.stack[:1]), None)


def _loaded_state(case: Case) -> Iterator[Fix]:
    """An optimizer's state that the program loads by itself is cast where the optimizer gets it."""
    if case.refused.phase != "optimizer" or case.born is None:
        return
    edit = optimizers.stores_state(case.recording.text, case.here, case.born)
    where = "before they are given to the optimizer"
    if edit is not None:
        where = f"where they are stored, {short(case.here).rpartition(':')[0]}:{edit.start[0]}"
    by_itself = "with the optimizer's load_state_dict() instead, they would need no cast"
    change = f"cast the tensors loaded at {short(case.here)} to {case.born} {where}; {by_itself}"
    yield advise(case.here, change, named=case.here, edits=edit, safe=True, others=alternatives.others(case))
