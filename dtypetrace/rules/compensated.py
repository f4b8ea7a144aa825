"""Sums that the program compensates: it computes what each addition rounds away, and adds it to what comes next."""

from __future__ import annotations

from collections.abc import Iterator

from ..records import Input, Op
from ..tables.operators import name_of, tagged, writes
from .run_facts import Run

_NEAR = 16
"""Ops below a sum that are searched for its copies."""


def low_order(run: Run, number: int) -> frozenset[int]:
    """The ops that compute what an addition rounds away: its result less one operand, and that with the other operand.

    Empty where the program does not compute it. In exact arithmetic these numbers would all be zero.
    """
    op = run.ops[number]
    if len(op.inputs) != 2 or not tagged(op, "sum", "difference"):
        return frozenset()
    below = lambda n: {n for n, _ in run.below([n], run.moves, _NEAR) if run.moves(n)}
    results = {number, *below(number)}
    if writes(op):  # through another view, as ``p.data`` is one each time
        results |= {n for root in [*_unmoved(run, op.inputs[0].producer)][-1:] for n in below(root) if n > number}
    one, other = ({*_unmoved(run, i.producer)} - results for i in op.inputs)
    found = set[int]()
    for kept, added in ((one, other), (other, one)):
        changes = {n for n in _meeting(run, results, kept) if tagged(run.ops[n], "difference")} - {number}
        if rest := _meeting(run, changes, added) - {number}:
            found |= changes | rest
    return frozenset(found)


def low_orders(run: Run) -> tuple[frozenset[int], frozenset[int]]:
    """The ops of all sums that compute what these round away, and the events of the tensors in which it is kept."""
    found = frozenset[int]().union(*(low_order(run, n) for n in range(len(run.ops))))
    return found, frozenset(run.ops[n].inputs[0].event for n in found if writes(run.ops[n])) - {-1}


def weights(run: Run) -> frozenset[int]:
    """The events of what an optimizer's compensated sums change."""
    steps = [(n, op) for n, op in enumerate(run.ops) if op.phase == "optimizer"]
    lists = [
        (name_of(op).removeprefix("_foreach_"), *_halves(op)) for _, op in steps if op.aten.startswith("_foreach_")
    ]
    sums = [op.inputs for n, op in steps if low_order(run, n)]
    for n, (name, *added) in enumerate(lists):
        left = [
            set(pair) - {added[0]}
            for later, *pair in lists[n:]
            if name == "add" and later == "sub" and added[0] in pair
        ]
        if any({*pair} - {added[1]} in left for later, *pair in lists[n:] if later == "add"):
            sums.append(added[0])
    return frozenset(i.event for inputs in sums for i in inputs) - {-1}


def _halves(op: Op) -> tuple[tuple[Input, ...], tuple[Input, ...]]:
    """The two lists of tensors that an op takes."""
    middle = len(op.inputs) // 2
    return op.inputs[:middle], op.inputs[middle:]


def _meeting(run: Run, some: set[int], others: set[int]) -> set[int]:
    """The additions and differences that take a result of some ops and one of others."""
    users = {u for n in some for u in run.users[n] if tagged(run.ops[u], "sum", "difference")}
    return {u for u in users if any(n in others for i in run.ops[u].inputs for n in _unmoved(run, i.producer))}


def _unmoved(run: Run, number: int) -> Iterator[int]:
    """An op and those above it whose numbers it only moves, casts or copies."""
    seen = set[int]()
    while number >= 0 and number not in seen:
        seen.add(number)
        yield number
        op = run.ops[number]
        if not (run.moves(number) or name_of(op) == "copy") or not op.inputs:
            return
        number = op.inputs[-1 if writes(op) else 0].producer
