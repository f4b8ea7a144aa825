"""Where a number that was flushed to zero does harm: at a function with a pole there."""

from __future__ import annotations

from ..tables.operators import is_cast, is_move, name_of
from .run_facts import Run

POLES = ("div", "true_divide", "reciprocal", "rsqrt", "log", "log2", "log10", "pow")
"""Functions that are infinite at zero: there an operand that was flushed to zero does harm."""
_PASS = frozenset({"sum", "add", "clamp", "clamp_min", "maximum", "mm", "mv", "matmul", "mul", "prod", "sqrt"})
"""Through these a zero goes on towards such a function."""
_MOST_ABOVE = 64


def feeds_pole(run: Run, number: int, also: frozenset[str] = frozenset()) -> bool:
    """Whether a function with a pole at zero takes what an op made, perhaps added up, widened or limited before.

    In a loop of products each call loses a little, until one loses all that is left.

    also: further functions that count.
    """
    seen, waiting = {number}, [number]
    while waiting and len(seen) < _MOST_ABOVE:
        for user in run.users[waiting.pop(0)]:
            op = run.ops[user]
            name = name_of(op)
            if name in also or name in POLES and any(i.producer in seen for i in op.inputs[-1:]):
                return True
            if user not in seen and (is_move(op) or is_cast(op) or name in _PASS):
                seen.add(user)
                waiting.append(user)
    return False
