"""Where a number that was flushed to zero does harm: at a function with a pole there."""

from __future__ import annotations

from ..tables.operators import tagged
from .run_facts import Run

_PASS = "total", "sum", "lower_bound", "matmul", "product", "root"
"""Tags of what passes a zero on towards a function that is infinite there."""
_MOST_ABOVE = 64


def feeds_pole(run: Run, number: int, also: tuple[str, ...] = ()) -> bool:
    """Whether a function with a pole at zero takes what an op made, perhaps added up, widened or limited before.

    In a loop of products each call loses a little, until one loses all that is left.

    also: tags of further functions that count.
    """
    on = lambda n: run.moves(n) or tagged(run.ops[n], *_PASS)
    for user, taken in run.below([number], on, _MOST_ABOVE):
        op = run.ops[user]
        if tagged(op, *also) or tagged(op, "pole") and len(op.inputs) - 1 in taken:
            return True
    return False
