"""What numbers went through before an op takes them, and what takes them after it."""

from __future__ import annotations

from ..records import UNWATCHED, Op
from ..source import expressions
from ..tables.dtypes import NARROW, REAL
from ..tables.operators import is_cast, is_move, tagged
from .run_facts import FAR, Run


def in_16_bits(run: Run) -> frozenset[int]:
    """The ops that compute with something that was in 16 bits, or in 8, once."""
    found: set[int] = set()
    for number, op in enumerate(run.ops):
        dtypes = (*op.outputs, *(i.dtype for i in op.inputs))
        if any(d in NARROW for d in dtypes) or any(i.producer in found for i in op.inputs):
            found.add(number)
    return frozenset(found)


def from_unwatched(run: Run) -> frozenset[int]:
    """The ops that compute with something that was made while nothing was watched: nobody knows what it was before it
    was rounded."""
    found: set[int] = set()
    events = run.recording.events
    unseen = lambda i: i.producer < 0 <= i.event and events[i.event].op == UNWATCHED and i.dtype in REAL
    for number, op in enumerate(run.ops):
        if any(unseen(i) or i.producer in found for i in op.inputs):
            found.add(number)
    return frozenset(found)


def never_read(run: Run, number: int) -> bool:
    """Whether nothing uses an op's result: no op, and no line of the program."""
    stack = run.place(run.ops[number]).stack
    return bool(stack) and not run.users[number] and expressions.never_read(run.recording.text, stack[0])


def reads(op: Op) -> bool:
    """Whether the program takes what an op reads out of its floating numbers, or goes back from there."""
    name = op.aten.partition(".")[0]
    return (
        bool(op.outputs)
        and op.outputs[0] not in REAL
        or name == "_local_scalar_dense"
        or name == "ones_like"
        and op.phase == "backward"
    )


_PASS = "total", "sum", "lower_bound", "matmul", "product", "root"
"""Tags of what passes a zero on towards a function that is infinite there."""


def feeds_pole(run: Run, number: int) -> bool:
    """Whether a function with a pole at zero takes what an op made, perhaps added up, widened or limited before.

    In a loop of products each call loses a little, until one loses all that is left.
    """
    on = lambda n: run.moves(n) or tagged(run.ops[n], *_PASS)
    below = run.below([number], on, FAR)
    return any(run.is_pole(n) and len(run.ops[n].inputs) - 1 in taken for n, taken in below)


def replaces_zeros(run: Run, number: int) -> bool:
    """Whether a program puts other numbers in place of those that are zero in what an op made, and then divides by
    them: where a number was too small, it takes it for none."""
    of_it = {number, *(n for n, _ in run.below([number], run.moves, FAR) if run.moves(n))}
    asked = {u for n in of_it for u in run.users[n] if tagged(run.ops[u], "equal", "compare")}
    takes_it = lambda n: any(i.producer in of_it for i in run.ops[n].inputs)
    replaced = {u for mask in asked for u in run.users[mask] if takes_it(u)}
    return any(feeds_pole(run, n) for n in replaced)


def tells_apart(run: Run, number: int) -> bool:
    """Whether a program tells things apart by integers, or by what they add up to."""
    whole = lambda op: is_cast(op) and not {*op.outputs} & REAL
    stays = lambda n: is_move(run.ops[n]) or whole(run.ops[n]) or tagged(run.ops[n], "sum", "product")
    return any(tagged(run.ops[n], "keys") for n, _ in run.below([number], stays, FAR))
