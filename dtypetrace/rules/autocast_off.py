"""Autocast that is off at a refused call: it was on when this call ran before, or an inner region switched it off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import graph
from ..records import FORWARD, NAMED, Change, Edit, Input, Op, Place, Recording, Refused, Witness
from ..records.text import ParsedFile
from ..source import regions
from ..source.expressions import assignments, last_part
from ..tables.dtypes import DTYPES, FLOATING, HALF
from ..tables.operators import NAMED_CASTS, is_cast


def earlier(recording: Recording, refused: Refused) -> Iterator[Op]:
    """The ops of the refused call's earlier runs.

    One module may call one operator for two of its weights, as adapters do that replace a forward; and one weight may
    be used at two lines. So the line or a weight must be the same.
    """
    site = graph.place_of(recording, refused.place).stack[:1]
    weights = {(w.event, w.shape) for w in refused.witnesses if w.holder == "parameter"}
    for op in recording.ops[: refused.after if refused.after >= 0 else None]:
        if (op.op, op.module) == (refused.op, refused.module) and op.phase in FORWARD:
            own = {(i.event, i.shape) for i in _weights(recording, op)}
            if graph.place_of(recording, op.place).stack[:1] == site or own & weights:
                yield op


def _weights(recording: Recording, op: Op) -> Iterator[Input]:
    """The parameters that an op takes, with those that autocast cast for it."""
    for i in op.inputs:
        made = recording.ops[i.producer] if i.producer >= 0 else None
        casts = made is not None and is_cast(made) and made.op not in NAMED_CASTS
        yield from (w for w in (i, *(made.inputs[:1] if made is not None and casts else ())) if w.holder == "parameter")


def ran_under(recording: Recording, refused: Refused) -> Op | None:
    """The last earlier run of a call that ran under autocast alone, and is refused without it; None where there is
    none."""
    runs = list(earlier(recording, refused)) if not refused.autocast and refused.phase in FORWARD else []
    # with one operand, such as a transpose, it may be a part of the refused call itself
    bare = any(not op.autocast and sum(i.dtype in FLOATING for i in op.inputs) > 1 for op in runs)
    return next((op for op in reversed(runs) if op.autocast and not bare), None)


def own_forward(recording: Recording, refused: Refused) -> tuple[str, str] | None:
    """The function and the file of the forward of a hand-written function whose backward is refused."""
    stack = graph.place_of(recording, refused.place).stack[:1]
    owner, _, name = stack[0].function.rpartition(".") if stack else ("", "", "")
    if refused.autocast or refused.phase != "backward" or refused.derived or name != "backward" or not owner:
        return None
    return f"{owner}.forward", stack[0].file


def runs(recording: Recording, op: Op, function: tuple[str, str]) -> bool:
    """Whether an op ran inside a function of a file."""
    return any((f.function, f.file) == function for f in graph.place_of(recording, op.place).stack)


def ran_in_forward(recording: Recording, refused: Refused) -> Op | None:
    """An op of the forward of a hand-written function, under autocast, whose backward is refused; None for any other
    call."""
    forward = own_forward(recording, refused)
    ops = (op for op in recording.ops if op.autocast) if forward is not None else ()
    return next((op for op in ops if forward is not None and runs(recording, op, forward)), None)


def with_own_forward(recording: Recording, refused: Refused) -> Refused:
    """A call that was refused in the backward of a hand-written function, where the gradient that this was given is
    born with the result of its forward: autograd gives it the dtype of that."""
    forward = own_forward(recording, refused)
    if forward is None:
        return refused
    own = graph.place_of(recording, refused.place).stack[0]

    def given(w: Witness) -> bool:
        ops = recording.ops
        for n in graph.first_operands(ops, w.producer) if w.holder is None else ():
            if n < 0 or not runs(recording, ops[n], (own.function, own.file)):
                return n >= 0 and ops[n].phase == "backward"
            if [i.dtype for i in ops[n].inputs[:1]] != [w.dtype]:
                return False  # it has its dtype from here
        return False

    last = next((n for n, op in reversed(list(enumerate(recording.ops))) if runs(recording, op, forward)), -1)
    made = next((i for op in recording.ops[last + 1 :] for i in op.inputs if i.producer == last), None)
    if made is None:
        return refused
    sides = (replace(w, event=made.event) if w.dtype == made.dtype and given(w) else w for w in refused.witnesses)
    return replace(refused, witnesses=tuple(sides))


@dataclass(frozen=True, slots=True)
class Off:
    """A region around a refused call in which autocast is off."""

    region: Place
    why: str
    """Why it is off; empty where the text does not show it."""
    outer: Place | None
    """The region around it: what is off inside was on there."""
    change: str = ""
    """What to change so that it is on; empty where the program seems to mean that it is off."""
    edit: Edit | None = None


def switched_off(recording: Recording, refused: Refused) -> Off | None:
    """The innermost autocast region around a call that was refused without autocast; None where there is none."""
    device = next((w.device.partition(":")[0] for w in refused.witnesses if w.device), "")
    if refused.autocast or refused.phase not in FORWARD or not device:
        return None
    around = list(regions.around(recording.text, graph.place_of(recording, refused.place)))
    if not around:
        return None
    region, call = around[0]
    outer, outside = around[1] if len(around) > 1 else (None, None)
    file = recording.text.parsed(region.file)
    if not isinstance(call, ast.Call) or file is None:
        return Off(region, "", outer)
    named = {k.arg: k.value for k in call.keywords}
    kind = call.args[0] if call.args else named.get("device_type")
    takes = _constant(file, call, kind).partition(":")[0]
    if takes and takes != device:
        edit = _edit(file, region, kind, f'"{device}"') if isinstance(kind, ast.Constant) else None
        return Off(
            region,
            f"it is for {takes}, and the tensors are on {device}",
            outer,
            f"make this region one for {device}",
            edit,
        )
    dtype = named.get("dtype") or next((a for a in call.args if last_part(a) in DTYPES), None)
    if dtype is not None and last_part(dtype) in DTYPES and last_part(dtype) not in HALF:
        why, half = f"autocast takes no {last_part(dtype)}", _half_in(recording, outside)
        # a region that names the weights' own dtype means what it says: compute in that dtype
        if half and last_part(dtype) not in {w.dtype for w in refused.witnesses if w.holder == "parameter"}:
            return Off(
                region,
                why,
                outer,
                f"give this region {half}, or leave it out",
                replace(_edit(file, region, dtype, f"torch.{half}"), change=Change(NAMED, half)),
            )
        return Off(region, why, outer)
    never = isinstance(enabled := named.get("enabled"), ast.Constant) and enabled.value is False
    return Off(region, "enabled=False" if never else "", outer)


def _constant(file: ParsedFile, call: ast.Call, node: ast.expr | None) -> str:
    """The text that an argument is, or that its name was assigned in the same function; empty for any other."""
    values = [node]
    if isinstance(node, ast.Name):
        values = [assignment.value for assignment in assignments(file, call, node.id)]
    found = {v.value if isinstance(v, ast.Constant) else None for v in values}
    only = found.pop() if len(found) == 1 else None
    return only if isinstance(only, str) else ""


def _edit(file: ParsedFile, region: Place, node: ast.expr, after: str) -> Edit:
    return Edit(region.file, file.start(node), file.end(node), file.segment(node), after)


def _half_in(recording: Recording, region: ast.expr | None) -> str:
    """The half dtype that a region names, or in which the run's regions computed; empty where there is no region."""
    if region is None:
        return ""
    ran = (op.autocast.partition(":")[2] for op in recording.ops if op.autocast)
    return next((name for n in ast.walk(region) if (name := last_part(n)) in HALF), next(ran, "bfloat16"))
