"""The case that the judgement weighs: one refused call, with what several principles ask of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .. import graph
from ..records import Recording, Refused, Witness
from ..tables.dtypes import COUNTERPART, FLOATING

_POINTERS = frozenset({"index", "indices", "offsets", "batch_sizes", "mask", "condition"})
"""Arguments that are integers or booleans by definition: they take no side where the values disagree."""
_MAJORITY = 0.5
"""The share of all numbers from which on a dtype is that of the model, or of the run."""


@dataclass(frozen=True, slots=True)
class Majority:
    """The dtype of most numbers that parameters hold, less those whose dtype is in question."""

    dtype: str
    share: float
    scope: str
    """``model`` or ``run``."""
    shown: str
    """The dtype as the reason names it: complex operands are judged by the precision of the real weights."""


@dataclass(frozen=True)
class Collision:
    """One refused call in its recording."""

    recording: Recording
    refused: Refused

    @cached_property
    def sides(self) -> tuple[Witness, ...]:
        """The operands whose dtypes disagree: the floating ones, or all tensors where those agree."""
        floating = tuple(w for w in self.refused.witnesses if w.dtype in FLOATING)
        if len({w.dtype for w in floating}) > 1:
            return floating
        tensors = tuple(
            w
            for w in self.refused.witnesses
            if not w.dtype.startswith("python") and w.argument.split("[")[0] not in _POINTERS
        )
        return tensors if len({w.dtype for w in tensors}) > 1 else floating or tensors

    @cached_property
    def present(self) -> frozenset[str]:
        """The dtypes of the sides."""
        return frozenset(w.dtype for w in self.sides)

    def other(self, dtype: str) -> str:
        """The other of exactly two dtypes that are present."""
        return next(iter(self.present - {dtype}))

    @cached_property
    def majority(self) -> Majority | None:
        """The dtype of most parameters of the model, else of the run; None where none has most of them.

        Where two dtypes are present and neither is the majority's, the call stands apart from the model (a loss): None.
        """
        complexes = len(self.present) > 1 and all(dtype.startswith("complex") for dtype in self.present)
        scope, sizes = "model", self._undisputed(complexes)
        if not sizes:
            scope, sizes = "run", self._of_run()
        sizes = +sizes
        if not sizes:
            return None
        dtype, size = sizes.most_common(1)[0]
        share = size / sum(sizes.values())
        if share <= _MAJORITY or dtype not in self.present and len(self.present) > 1:
            return None
        return Majority(dtype, share, scope, COUNTERPART.get(dtype, dtype) if complexes else dtype)

    def _undisputed(self, complexes: bool) -> Counter[str]:
        """Numbers per dtype of the model's parameters that are no operand here and gave no operand its dtype.

        A cast that all of the model went through is not an operand's alone and does not exclude a parameter. Casting a
        module leaves its complex weights as they are: where complex numbers disagree, the real weights speak for them.
        """
        disputed = {w.name for w in self.sides if w.name}
        shared = Counter(p.step for p in self.refused.model)
        parties = {n for w in self.sides for n in graph.steps_above(self.recording, w.step) if shared[n] == 1}
        sizes: Counter[str] = Counter()
        for p in self.refused.model:
            if p.name not in disputed and p.step not in parties:
                sizes[COUNTERPART.get(p.dtype, p.dtype) if complexes else p.dtype] += p.size
        return sizes

    def _of_run(self) -> Counter[str]:
        """Numbers per dtype of every parameter that was alive, less those that are operands here."""
        sizes = Counter(dict(self.refused.run))
        for w in self.sides:
            if w.holder == "parameter":
                sizes[w.dtype] -= prod(w.shape)
        return sizes
