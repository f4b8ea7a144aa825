"""Whether a wide copy of 16-bit weights collects their updates: in the optimizer's hands, or in its state."""

from __future__ import annotations

from .. import graph
from ..records import Op, Parameter, Recording
from ..tables.dtypes import HALF, wider
from ..tables.operators import destination, is_cast, name_of, writes

NONE = "none"
_TO_TELL = 2


def trained(recording: Recording) -> list[Parameter]:
    """The weights in 16 bits that an optimizer's steps train."""
    stepped = any(u.steps or u.written for u in recording.updates)
    return [p for p in recording.parameters if stepped and p.trained and p.holder == "parameter" and p.dtype in HALF]


def copy(recording: Recording) -> tuple[str, str]:
    """The dtype of the copy (``none`` where there is none) and where it is; both empty where nothing is trained in 16
    bits, or where that does not show."""
    weights = trained(recording)
    if not weights:
        return "", ""
    names = {p.name.partition(".")[2] for p in weights} | {p.name for p in weights}
    steps = [u for u in recording.updates if u.steps or u.written]
    beside = [u for u in steps if u.dtype not in HALF and not u.gradient_declared and u.name not in names]
    direct = any(u.dtype in HALF for u in steps)
    if beside and not direct:
        return beside[0].dtype, "in the optimizer's hands"
    kept = [op for op in recording.ops if _stores_wide(op)]
    lasting = [op for op in kept if _lasts(recording, op)]
    if lasting:
        return lasting[0].inputs[1].dtype, "in the optimizer's state"
    # after one step, a copy that was just made looks like one that is made in each
    return ("", "") if kept and int(recording.meta.get("steps", 0)) < _TO_TELL else (NONE, "")


def _stores_wide(op: Op) -> bool:
    """Whether an op stores a wide tensor in a 16-bit weight."""
    at = destination(op) if writes(op) else -1
    target = op.inputs[at] if at == 0 and len(op.inputs) > 1 else None
    stores = target is not None and target.dtype in HALF and name_of(op).removeprefix("_foreach_") == "copy"
    return stores and op.phase in ("optimizer", "other") and wider(op.inputs[1].dtype, op.inputs[0].dtype)


def _lasts(recording: Recording, op: Op) -> bool:
    """Whether what is stored was there before the step: what it was first made of ran less often than it is stored."""
    number = op.inputs[1].producer
    for number in graph.first_operands(recording.ops, op.inputs[1].producer):
        made = recording.ops[number]
        if is_cast(made) or not made.inputs:
            break
    return number < 0 or recording.ops[number].count < op.count
