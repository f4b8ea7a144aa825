"""Sums that the program compensates: it computes what each addition rounds away, and adds it to what comes next."""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..tables.operators import tagged, writes
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
    results = {number, *(n for n, _ in run.below([number], run.moves, _NEAR) if run.moves(n))}
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


def _meeting(run: Run, some: set[int], others: set[int]) -> set[int]:
    """The additions and differences that take a result of some ops and one of others."""
    users = {u for n in some for u in run.users[n] if tagged(run.ops[u], "sum", "difference")}
    return {u for u in users if any(n in others for i in run.ops[u].inputs for n in _unmoved(run, i.producer))}


def _unmoved(run: Run, number: int) -> Iterator[int]:
    """An op and those above it whose numbers it only moves or casts."""
    for above in graph.first_operands(run.ops, number):
        if above >= 0:
            yield above
            if not run.moves(above):
                return
