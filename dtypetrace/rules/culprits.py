"""Which operand of a collision is the culprit: the verdict of the first principle that has one, and the operand that it
blames."""

from __future__ import annotations

from dataclasses import replace

from ..records import Recording, Refused, Witness
from ..tables.dtypes import FLOATING
from ..tables.operators import is_destination
from .collision import POINTERS, Collision, Verdict
from .principles import PRINCIPLES, name_of

_ROLES = {  # for each kind that an operation wants, the arguments to blame first
    "integer": ("index", "indices", "target", "labels", "tensor_indices_or_sections", "input"),
    "bool": ("mask", "condition", "attn_mask"),
    "float": ("target", "input", "self"),
}


def verdict(recording: Recording, refused: Refused) -> Verdict:
    """The dtype that the run was meant to have at a refused call, with the fact and the principle that show it."""
    case = Collision(recording, refused)
    for principle in PRINCIPLES:
        found = principle(case)
        if found is not None:
            return replace(found, principle=name_of(principle))
    return Verdict(None)


def contenders(refused: Refused) -> tuple[Witness, ...]:
    """The operands whose dtypes disagree: the floating ones; if these have one dtype, all tensors."""
    return Collision(Recording(), refused).sides


def culprit(refused: Refused, expected: str | None) -> Witness | None:
    """The operand to blame, given what the operation wanted; ``expected`` is the verdict's dtype."""
    if not refused.witnesses:
        return None
    if refused.wants == "fits":
        scalars = [w for w in refused.witnesses if w.dtype.startswith("python")]
        return scalars[-1] if scalars else refused.witnesses[-1]
    if refused.wants == "kernel":
        return _first(_named(refused) or _without_kernel(refused) or refused.witnesses)
    if refused.wants in _ROLES:
        return _first(_unsuitable(refused) or refused.witnesses)
    sides = contenders(refused)
    if refused.code == "DT111" and len({w.dtype for w in sides}) == 1:  # what it is written into is in the way
        sides = tuple(w for w in sides if is_destination(refused.op, w.argument, w.index)) or sides
    return _first([w for w in sides if w.dtype != expected] or _named(refused) or sides)


def _named(refused: Refused) -> list[Witness]:
    """The operands that the exception names."""
    return [w for w in refused.witnesses if refused.argument and w.argument.split("[")[0] == refused.argument]


def _without_kernel(refused: Refused) -> list[Witness]:
    """The operands whose dtype the exception says has no kernel; if there are none, the floating operands."""
    said = {dtype for _, dtype in refused.dtypes}
    found = [w for w in refused.witnesses if ("found", w.dtype) in refused.dtypes]
    found = found or [w for w in refused.witnesses if w.dtype in said]
    found = [w for w in found if w.argument in POINTERS] or found
    return found or [w for w in refused.witnesses if w.dtype in FLOATING]


def _unsuitable(refused: Refused) -> list[Witness]:
    """The operands that are not of the kind that the operation wants, the likeliest first."""
    if named := _named(refused):
        return named
    said = {dtype for _, dtype in refused.dtypes}
    wrong = [w for w in refused.witnesses if not suits(w.dtype, refused.wants)]
    wrong = [w for w in wrong if w.dtype in said] or wrong
    roles = [w for role in _ROLES[refused.wants] for w in wrong if w.argument.split("[")[0] == role]
    return roles or wrong


def _first(witnesses: list[Witness] | tuple[Witness, ...]) -> Witness | None:
    return next((w for w in witnesses if w.holder == "parameter"), witnesses[0] if witnesses else None)


def suits(dtype: str, wants: str) -> bool:
    """Whether a dtype is of the kind that an operation wants: ``integer`` means int64 only, ``bool`` also accepts
    uint8, ``float`` is any floating dtype."""
    if wants == "bool":
        return dtype in ("bool", "uint8")
    if wants == "integer":
        return dtype == "int64"
    return dtype in FLOATING
