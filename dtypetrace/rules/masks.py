"""Masks that are added: constants so far below all other numbers that their exponential is zero."""

from __future__ import annotations

from ..tables.dtypes import DTYPES
from ..tables.operators import tagged
from .losses import Cause
from .narrow_tables import source_of
from .run_facts import Run

_GONE = 746.0
"""The exponential of minus this is zero even in float64."""
_DETAIL = 0.125
"""Logarithms that are less than this apart have nearly the same exponential."""


def leaves_only_rounding(run: Run, cause: Cause) -> bool:
    """Whether an exponential made much of what was rounded as a mask was added.

    That happens in rows that are masked as a whole, such as those of padding: nothing else is left of them, and nobody
    uses them. Without the mask, the rounding must be harmless.
    """
    if cause.rounded < 0 or not tagged(run.ops[cause.op], "softmax", "log_softmax", "exponential"):
        return False
    added = run.ops[cause.rounded]
    if not tagged(added, "sum") or not added.outputs or added.outputs[0] not in DTYPES:
        return False
    others = [i for i in added.inputs if i.producer < 0 or not source_of(run, i.producer).pure]
    rounding = DTYPES[added.outputs[0]].rounding
    harmless = all(run.peaks.get(i.producer, 0.0) * rounding < _DETAIL for i in others)
    return len(others) < len(added.inputs) and run.peaks.get(cause.rounded, 0.0) >= _GONE and harmless
