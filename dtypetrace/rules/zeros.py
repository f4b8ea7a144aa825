"""Where a number that was flushed to zero does harm: at a function with a pole there."""

from __future__ import annotations

from ..tables.operators import is_cast, is_move, name_of, tagged
from .run_facts import Run

_PASS = "total", "sum", "lower_bound", "matmul", "product", "root"
"""Tags of what passes a zero on towards a function that is infinite there."""
_MOST_ABOVE = 64


def feeds_pole(run: Run, number: int, also: tuple[str, ...] = ()) -> bool:
    """Whether a function with a pole at zero takes what an op made, perhaps added up, widened or limited before.

    In a loop of products each call loses a little, until one loses all that is left.

    also: tags of further functions that count.
    """
    seen, waiting = {number}, [number]
    while waiting and len(seen) < _MOST_ABOVE:
        for user in run.users[waiting.pop(0)]:
            op = run.ops[user]
            name = name_of(op)
            if tagged(name, *also) or tagged(name, "pole") and any(i.producer in seen for i in op.inputs[-1:]):
                return True
            if user not in seen and (is_move(op) or is_cast(op) or tagged(name, *_PASS)):
                seen.add(user)
                waiting.append(user)
    return False
