"""The proof that a patch repairs a program: the values of two runs, compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .. import rules
from ..records import Recording
from ..tables.dtypes import FLOATING, narrower
from .runs import Pass

TOLERANCE = {"float8_e5m2": 0.5, "float8_e4m3fn": 0.3, "bfloat16": 0.1, "float16": 0.02, "float32": 1e-3}
"""Relative tolerance, by the coarsest dtype that is used: about ten roundings of it, because the two runs cast at
different places."""
_FINEST = 1e-6
"""For runs in float64 only, whose sums may still be computed in another order."""
_MEASURES: tuple[Literal["value", "norm"], ...] = ("value", "norm")


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a repair. ``proven``: the patched program ran without a refusal, and as the healed one did."""

    proven: bool
    why: str
    rounds: int = 0


def tolerance(recording: Recording) -> float:
    """The largest relative difference between two runs whose values agree."""
    seen = {dtype for op in recording.ops for dtype in (*op.outputs, *(i.dtype for i in op.inputs))} & FLOATING
    return max((TOLERANCE.get(dtype, _FINEST) for dtype in seen), default=_FINEST)


def compare(healed: Sequence[Pass], patched: Sequence[Pass]) -> float | None:
    """The largest relative difference between two runs' values and gradient norms, over the passes that both made; None
    where there are none."""
    pairs = [(a[key], b[key]) for a, b in zip(healed, patched) for key in _MEASURES]
    return max((_apart(x, y) for x, y in pairs if x is not None and y is not None), default=None)


def narrowed(before: Recording, after: Recording) -> list[str]:
    """The weights that an optimizer trains and that are narrower in a patched run, in a dtype that no other trained
    weight had."""
    if not after.meta.get("trains"):
        return []
    trained = {p.name: p.dtype for p in before.parameters if p.trained}
    return [
        p.name
        for p in after.parameters
        if p.trained and narrower(p.dtype, trained.get(p.name)) and p.dtype not in trained.values()
    ]


def new_findings(before: Recording, after: Recording) -> list[str]:
    """The serious findings of a patched run, of a kind that the healed run had not."""
    known = {f.kind for f in rules.find(before)} | {"collision"}
    return [f"{f.code}: {f.title}" for f in rules.find(after) if f.severity != "note" and f.kind not in known]


def _apart(x: float, y: float) -> float:
    if x == y or math.isnan(x) and math.isnan(y):
        return 0.0
    if not math.isfinite(x) or not math.isfinite(y):
        return math.inf
    return abs(x - y) / max(abs(x), abs(y))


_SHOWN_AS_SHARE = 1e-4


def percent(share: float) -> str:
    """A share as text; below a hundredth of a per cent as a power of ten."""
    return "nothing" if share == 0 else f"{share:.2%}" if share >= _SHOWN_AS_SHARE else f"{share:.0e}"
