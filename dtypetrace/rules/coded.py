"""Numbers that are codes: packed or scaled ones, which a cast would turn into other numbers.

A weight of 4-bit numbers holds two in each byte; one of int8 or float8 was divided by a scale as it was stored. What
such a tensor means is known to its module: it is called, or the codes are multiplied by their scale again.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .. import graph
from ..graph import place_of, unmoved
from ..records import Edit, Fix, Input, Place, Recording, Witness
from ..source import codes as written_codes
from ..source import operands
from ..source.module_calls import module_call
from ..tables.dtypes import DTYPES, FLOATING, Dtype
from ..tables.english import quoted
from ..tables.operators import is_cast, is_move, name_of, tagged
from .advice import advise
from .case import Case, one, short

_NEAR = 16
"""How many ops a scale may be computed with."""


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
    if number < 0 or not tagged(ops[number], "scale"):
        return -1
    return number if stored.kind != "float" or _fits(recording, number, stored) else -1


def _fits(recording: Recording, number: int, stored: Dtype) -> bool:
    """Whether an op scales numbers to the range of a format that takes them as they are, too: by its largest number, by
    a tensor that is kept or comes from an extreme, or by a number that was read from an extreme of theirs.

    Any other factor, such as a strength, is a part of what the numbers mean.
    """
    op, ops = recording.ops[number], recording.ops
    frame = next(iter(place_of(recording, op.place).stack), None)
    if frame is not None and operands.names_limit(recording.text, frame, stored.largest):
        return True
    by = [i for i in op.inputs if prod(i.shape) < prod(op.shape)]
    if any(_is_kept(recording, i) or _extremes(recording, i.producer) for i in by):
        return True
    read = (n for n in range(number) if tagged(ops[n], "observed")) if len(op.inputs) == 1 else ()
    above = graph.ops_above(ops, [extreme for n in read for extreme in _extremes(recording, n)])
    return any(
        (i.producer, i.event) == (op.inputs[0].producer, op.inputs[0].event) for n in above for i in ops[n].inputs
    )


def _is_kept(recording: Recording, given: Input) -> bool:
    """Whether an operand is a module's tensor or was made before, and only moved, cast or scaled since."""
    ops = recording.ops
    while given.producer >= 0 and ops[given.producer].inputs:
        op = ops[given.producer]
        if not (is_move(op) or is_cast(op) or tagged(op, "scale")):
            break
        given = op.inputs[0]
    kept = {p.event for p in recording.parameters}
    return given.holder is not None or given.producer < 0 or given.event in kept - {-1}


def _extremes(recording: Recording, number: int) -> list[int]:
    """The ops that found the largest or smallest of numbers, from which another op computed its result."""
    return [n for n in graph.ops_above(recording.ops, [number], most=_NEAR) if tagged(recording.ops[n], "extreme")]


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
    number = _scaled(case.recording, case.witness)
    packed = f"a cast would not give back the weights that {shown} holds as {dtype} codes"
    found = module_call(case.recording.text, case.site) if case.passed else None
    if found is not None:
        owner, edit = found
        yield advise(case.site, f"call {owner}(), which decodes its weight", packed, edits=edit, kind="call")
        return
    if number >= 0:
        op = case.recording.ops[number]
        at, (does, undoes) = short(place_of(case.recording, op.place)), _WAYS[name_of(op)]
        change = f"{undoes} {shown} by its scale again after the cast"
        why = f"{at} {does} the numbers by it before they were stored"
        here = place_of(case.recording, op.place)
        stored = case.recording.ops[unmoved(case.recording.ops, case.witness.producer)]
        cast = place_of(case.recording, stored.place)
        undone = _undone(case, here, cast) if DTYPES[dtype].kind != "float" else None  # torch promotes no float8
        if undone is not None:
            scale, edit = undone
            yield advise(cast, f"{undoes} the result by {quoted(scale)} again", why, edits=one(edit), kind="call")
            return
        yield advise(case.site, change, why, named=here, kind="call")
        return
    owner = case.culprit.shown.rpartition(".")[0]
    way = f"call the module, {owner}()," if owner and owner != "self" else "call the module that holds it,"
    yield advise(case.site, f"{way} or decode {shown} with its scale first", packed, kind="call")


def _undone(case: Case, scales: Place, stores: Place) -> tuple[str, Edit] | None:
    """How the program writes the scale, and the edit that undoes it after the cast."""
    if case.wanted not in FLOATING or not (scales.stack and stores.stack and stores.stack[0].user):
        return None
    return written_codes.undone(case.recording.text, scales.stack[0], stores.stack[0], case.wanted)
