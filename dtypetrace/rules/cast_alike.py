"""The program's own cast as the model: of two calls of one function, it casts what one returns."""

from __future__ import annotations

from .. import graph
from ..records import Edit, Place
from ..source import alike
from ..tables.operators import is_cast
from .case import Case, short


def as_another_call(case: Case, wanted: str) -> tuple[Place, Edit, str] | None:
    """The call that returned the culprit, where the program casts what another call of the same function returned in
    the function that made both; the edit that does the same, and the line of that cast."""
    ops, done = case.recording.ops, case.completed
    callers = {(f.file, f.function): n for n, f in enumerate(done.stack[1:], 1) if f.user} if done is not None else {}
    function = lambda place: [(f.file, f.function) for f in place.stack[:1]]
    narrow = (op for op in ops if is_cast(op) and op.outputs[:1] == (wanted,) and op.inputs) if done is not None else ()
    for op in narrow:
        given, place = op.inputs[0], graph.place_of(case.recording, op.place)
        at = next((callers[f] for f in function(place) if f in callers), 0)
        if done is None or not at or given.dtype != case.culprit.dtype or given.producer < 0:
            continue
        edit = alike.cast_as(case.recording.text, place.stack[0], done.stack[at], wanted)
        if edit is not None and function(graph.place_of(case.recording, ops[given.producer].place)) == function(done):
            return Place(done.stack[at:]), edit, short(place)
    return None
