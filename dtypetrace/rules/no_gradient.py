"""DT305: parameters of an optimizer that never receive a gradient, and why.

The reason is searched on the paths from the ops that used the parameter to the ops whose backward ran. A cast to
integers or booleans is harm, because a dtype caused it. A ``detach``, an op that recorded no graph, or no path at all
may be intended and is a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .. import graph
from ..records import Finding, FlowStep, Frame, Op, Operand, Origin, Recording, Update
from ..tables.dtypes import FLOATING
from ..tables.english import quoted
from ..tables.operators import tagged
from . import titles
from .advice import advise
from .mechanisms import LEAST_STEPS
from .silent_findings import At, silent_finding
from .training import MOST_SHOWN, born


@dataclass(frozen=True)
class Cut:
    """What keeps the gradient from a parameter: the op, -1 where there is none, and the kind."""

    op: int
    how: str
    """``dtype``, ``detach``, ``no influence``, ``no graph``, ``no way`` or ``unused``."""


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each op that cuts off parameters while others of the same optimizer get gradients."""
    learning = {u.place for u in recording.updates if u.gradient_dtype}
    groups: dict[tuple[object, ...], list[tuple[Update, Cut]]] = {}
    for u in recording.updates:
        if not u.gradient_dtype and u.absent >= LEAST_STEPS and not u.frozen and u.place in learning:
            cut = cut_of(recording, u)
            groups.setdefault((u.place, cut.how, _at(recording, cut)), []).append((u, cut))
    for members in groups.values():
        yield _finding(recording, members[0][1], [u for u, _ in members])


def _at(recording: Recording, cut: Cut) -> int | Frame | None:
    """What parameters with the same reason have in common: the cast, or else the user's line, behind which there may be
    many layers."""
    if cut.op < 0 or cut.how == "dtype":
        return cut.op
    return graph.place_of(recording, recording.ops[cut.op].place).user_frame


def cut_of(recording: Recording, u: Update) -> Cut:
    """Why a parameter got no gradient."""
    ops = recording.ops
    mine = _took(recording, u)
    if not mine:
        return Cut(-1, "unused")
    below = _below(recording, mine)
    cast = next((n for n in sorted(below) if _to_integers(ops[n]) and _floats_below(recording, n)), None)
    if cast is not None:
        return Cut(cast, "dtype")
    differentiated = {op.of for op in ops if op.phase == "backward" and op.of >= 0}
    if not below & differentiated:
        return Cut(max(mine), "no way")
    detached = {n for n in below if tagged(ops[n].op, "cuts")}
    if detached and not _below(recording, mine, without=detached) & differentiated:
        return Cut(min(detached), "detach")
    if mine & differentiated:  # a last bias has no influence on a loss of forces, which are gradients themselves
        return Cut(max(mine & differentiated), "no influence")
    return Cut(max(mine), "no graph")


def _took(recording: Recording, u: Update) -> set[int]:
    """The ops that computed with the parameter: those in its module, else those with an operand of its birth and
    shape."""
    module = u.name.rpartition(".")[0]
    like = {n for n, op in enumerate(recording.ops) if _takes(op, u)}
    own = {n for n in like if not module or f".{recording.ops[n].module}".endswith(f".{module}")}
    return own or like


def _takes(op: Op, u: Update) -> bool:
    """Whether an op of a forward pass computes with a parameter of this birth and shape."""
    if op.phase in ("backward", "optimizer") or op.aten.partition(".")[0].endswith("_"):  # these change it
        return False
    return any(i.holder == "parameter" and i.event == u.event and i.shape == u.shape for i in op.inputs)


def _to_integers(op: Op) -> bool:
    return (
        op.phase == "forward"
        and bool(op.outputs)
        and op.outputs[0] not in FLOATING
        and any(i.dtype in FLOATING for i in op.inputs)
    )


def _floats_below(recording: Recording, number: int) -> bool:
    """Whether anything floating was made from an op's result."""
    return any(o in FLOATING for n in _below(recording, {number}) for o in recording.ops[n].outputs)


def _below(recording: Recording, ops: set[int], without: Iterable[int] = ()) -> set[int]:
    """These ops and all ops that used their results, directly or later. Producers come before consumers, except in
    loops."""
    found = set(ops)
    for number, op in enumerate(recording.ops):
        if (
            number not in found
            and number not in without
            and op.phase != "backward"
            and any(i.producer in found for i in op.inputs)
        ):
            found.add(number)
    return found


_REASONS = {
    "detach": "{op} cuts the graph: no gradient comes back through it",
    "no graph": "{op} records no graph here, as under torch.no_grad()",
    "no influence": "a loss that uses only derivatives of this result, such as forces, does not depend on {named}",
    "no way": "backward() started from tensors that were not computed from it",
    "unused": "no op of the watched forward passes used it",
}
_TO_TRAIN = {
    "detach": "leave this {op} out",
    "no graph": "run this line with gradients enabled",
    "no influence": "compute a loss that depends on {them}",
    "no way": "call backward() on a loss that is computed from {them}",
    "unused": "use {them} in the forward pass",
}
"""The changes by which a parameter gets a gradient."""


def _finding(recording: Recording, cut: Cut, members: list[Update]) -> Finding:
    u = members[0]
    op = recording.ops[cut.op] if cut.op >= 0 else None
    site = graph.place_of(recording, op.place if op else u.place)
    at = At.of(op, site) if op is not None else At.step(site, u.name.rpartition(".")[0])
    parameters = tuple(
        Operand(n, m.name, m.dtype, m.shape, "", "parameter", born(recording, m))
        for n, m in enumerate(members[:MOST_SHOWN], 1)
    )
    weights = tuple(m.name for m in members)
    named = titles.shared([u.name], len(members))
    is_not, them = ("are not", "them") if len(members) > 1 else ("is not", "it")
    many = f"{named} get{'' if len(members) > 1 else 's'}"
    absent = f"{many} no gradient in {u.absent} steps, while other parameters of the optimizer do"
    if cut.how == "dtype" and op is not None:
        return replace(_cast_away(op, at, parameters, absent, len(members)), weights=weights)
    words = {"op": quoted(op.op) if op else "", "named": named, "them": them}
    leave = f"nothing to change, if {named} {is_not} to be trained"
    to_train = f"to train {them}, {_TO_TRAIN[cut.how].format(**words)}"
    return silent_finding(
        "DT305",
        at,
        severity="note",
        operands=parameters,
        weights=weights,
        flow=(FlowStep(site, at.op, at.module, u.dtype, u.dtype, "value", said=_REASONS[cut.how].format(**words)),),
        fix=advise(graph.NOWHERE, leave, f"the optimizer skips {them}", kind="gradient", others=(to_train,)),
        count=len(members),
        notes=(absent,),
    )


def _cast_away(op: Op, at: At, parameters: tuple[Operand, ...], absent: str, count: int) -> Finding:
    """A cast to integers or booleans, which no gradient passes."""
    source, to = next(i.dtype for i in op.inputs if i.dtype in FLOATING), op.outputs[0]
    culprit = Operand(0, f"result of {op.op}", to, (), "", None, Origin("cast", None, op.op, at.site, True))
    said = f"{source} becomes {to}, and no gradient passes through {to}"
    through = f"round with torch.round instead of a cast to {to}, and let the gradient pass"
    how = "for the value `v` that is cast here, compute `v + (v.round() - v).detach()`"
    return silent_finding(
        "DT305",
        at,
        operands=(culprit, *parameters),
        flow=(FlowStep(at.site, op.op, op.module, source, to, "cast", said=said),),
        fix=advise(at.site, through, how, kind="gradient"),
        count=count,
        notes=(absent,),
    )
