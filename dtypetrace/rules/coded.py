"""Numbers that are codes: packed or scaled ones, which a cast would turn into other numbers.

A weight of 4-bit numbers holds two in each byte; one of int8 or float8 was divided by a scale as it was stored. What
such a tensor means is known to its module: it is called, or the codes are multiplied by their scale again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import place_of, unmoved
from ..records import Fix, Recording, Witness
from ..source.module_calls import module_call
from ..tables.dtypes import DTYPES, FLOATING
from ..tables.english import quoted
from ..tables.operators import is_cast, name_of, tagged
from .advice import advise
from .case import Case, short


def holds_codes(recording: Recording, witness: Witness) -> bool:
    """Whether an operand holds codes: its module says so, or the program scaled it before the cast that stored it."""
    return witness.codes or _scaled(recording, witness) >= 0


def _scaled(recording: Recording, witness: Witness) -> int:
    """The op that scaled floating numbers before they were cast to the 8 bits that an operand has; -1 for none."""
    ops, number = recording.ops, witness.producer
    stored = DTYPES.get(witness.dtype)
    if stored is None or stored.bits > 8 or stored.kind == "bool":
        return -1
    number = unmoved(ops, number)
    if number < 0 or not is_cast(ops[number]) or ops[number].outputs[:1] != (witness.dtype,):
        return -1
    number = _made(recording, number)
    while number >= 0 and tagged(ops[number], "whole", "upper_bound"):
        number = _made(recording, number)
    return number if number >= 0 and tagged(ops[number], "scale") else -1


def _made(recording: Recording, number: int) -> int:
    """The op that made the first operand of another one, if that is floating."""
    first = next(iter(recording.ops[number].inputs), None)
    return first.producer if first is not None and first.dtype in FLOATING else -1


_WAYS = {"div": ("divided", "multiply"), "mul": ("multiplied", "divide")}


def codes(case: Case) -> Iterator[Fix]:
    """Codes are not cast: their module is called, or they are multiplied by their scale again."""
    if not holds_codes(case.recording, case.witness):
        return
    shown, dtype = quoted(case.culprit.shown), case.culprit.dtype
    scaled = _scaled(case.recording, case.witness)
    packed = f"a cast would not give back the weights that {shown} holds as {dtype} codes"
    found = module_call(case.recording.text, case.site) if case.passed else None
    if found is not None:
        owner, edit = found
        yield advise(case.site, f"call {owner}(), which decodes its weight", packed, edits=edit, kind="call")
        return
    if scaled >= 0:
        op = case.recording.ops[scaled]
        at, (does, undoes) = short(place_of(case.recording, op.place)), _WAYS[name_of(op)]
        change = f"{undoes} {shown} by its scale again after the cast"
        why = f"{at} {does} the numbers by it before they were stored"
        here = place_of(case.recording, op.place)
        yield advise(case.site, change, why, named=here, kind="call")
        return
    owner = case.culprit.shown.rpartition(".")[0]
    way = f"call the module, {owner}()," if owner and owner != "self" else "call the module that holds it,"
    yield advise(case.site, f"{way} or decode {shown} with its scale first", packed, kind="call")
