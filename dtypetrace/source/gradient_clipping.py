"""How the call that clips gradients would compute their norm in float32. Text only."""

from __future__ import annotations

import ast

from ..records import Edit, Place
from ..records.text import ProgramText
from .expressions import call_at, last_part


def clipped_in_float32(text: ProgramText, place: Place) -> Edit | None:
    """The edit by which ``clip_grad_norm_(parameters, most)`` scales by a norm of float32 copies of the gradients.

    None for another call, where its result is used, and where its parameters may be an iterator that is read once.
    """
    frame = place.user_frame
    file, call = (text.parsed(frame.file), call_at(text, frame)) if frame is not None else (None, None)
    if frame is None or file is None or call is None or last_part(call.func) != "clip_grad_norm_":
        return None
    name = file.segment(call.func)
    plain = len(call.args) == 2 and not call.keywords and isinstance(file.parents.get(call), ast.Expr) and "." in name
    if not plain or not isinstance(call.args[0], ast.Call):
        return None
    given, most = map(file.segment, call.args)
    home = name.rpartition(".")[0]
    norm = f"{home}.get_total_norm([p.grad.float() for p in {given} if p.grad is not None])"
    after = f"{home}.clip_grads_with_norm_({given}, {most}, {norm})"
    return Edit(frame.file, file.start(call), file.end(call), file.segment(call), after)
