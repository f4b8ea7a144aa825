"""The way of a value from its birth to where it meets other tensors: where a table is complete, and where a library
hands a value to the program.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import NOWHERE, place_of, upstream
from ..records import Place, Recording
from ..tables.dtypes import FLOATING
from ..tables.operators import tagged

Way = list[int]
"""The ops that a value went through, the last one first."""


def tables(recording: Recording, origin: Place, dtype: str, numbers: bool = True) -> tuple[int, ...]:
    """The ops that complete the tables made from an origin: for each table, the last op that all uses of it share.

    Empty unless an op on the way needs the precision of the wide dtype, such as a schedule's ``cumprod`` or an angle's
    ``cos``. Such a table should be cast when it is complete, not where it begins. An angle's ``cos`` and ``sin`` are
    two tables. ``numbers``: whether single numbers that are taken from it are uses, although they widen no tensor.
    """
    ways = _ways(recording, origin, dtype, numbers)
    if not any(tagged(recording.ops[n].op, "magnifies", "precise") for way in ways for n in way):
        return ()
    found = list(_complete(recording, ways))
    return tuple(found) if -1 not in found else ()


def _complete(recording: Recording, ways: list[Way]) -> Iterator[int]:
    """The op that completes each table; -1 where something uses a table before it is complete."""
    shared = _shared(ways)
    if shared is None:
        yield -1
        return
    ahead = [way[: way.index(shared)] for way in ways]
    if not any(tagged(recording.ops[n].op, "magnifies") for way in ahead for n in way):
        yield shared
        return
    branches: dict[int, list[Way]] = {}
    for way in ahead:
        branches.setdefault(way[-1] if way else -1, []).append(way)
    for branch in branches.values():
        yield from _complete(recording, branch)


def handed_out(recording: Recording, origin: Place, dtype: str, producer: int) -> Place:
    """The last user line that every use of a library's value passes through; NOWHERE if there is none.

    producer: the op that made the refused operand; used where the value met no other tensor before the refusal.
    """
    ways = _ways(recording, origin, dtype) or [upstream(recording, producer, _roots(recording, origin, dtype))]
    shared = _shared(ways)
    passed = ways[0][ways[0].index(shared) :] if shared is not None else ()
    own = (place_of(recording, recording.ops[n].place) for n in passed)
    return next((place for place in own if place.stack and place.stack[0].user), NOWHERE)


def _shared(ways: list[Way]) -> int | None:
    """The last op that all ways go through; None where they share none."""
    return next((n for n in ways[0] if all(n in way for way in ways)), None)


def _ways(recording: Recording, origin: Place, dtype: str, numbers: bool = True) -> list[Way]:
    """The ways from an origin to each op where its value met another floating tensor."""
    roots = _roots(recording, origin, dtype)
    ways = []
    for op in recording.ops:
        own = [i for i in op.inputs if i.event in roots and (i.shape or numbers)]
        others = {i.dtype for i in op.inputs if i.event not in roots and i.dtype in FLOATING}
        if own and others and not (tagged(op, "join") and others == {dtype}):  # padded with zeros, it is the same table
            ways += [upstream(recording, i.producer, roots) for i in own]
    return ways


def _roots(recording: Recording, origin: Place, dtype: str) -> set[int]:
    """The events by which a place decided for a dtype."""
    return {
        n
        for n, s in enumerate(recording.events)
        if not s.parents and s.to == dtype and place_of(recording, s.place) == origin
    }
