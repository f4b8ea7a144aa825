"""The case that the principles judge, one refused call with the facts that several of them need, and their verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import prod
from os.path import commonprefix

from .. import graph
from ..records import Parameter, Recording, Refused, Witness
from ..tables.dtypes import COUNTERPART, FLOATING

POINTERS = frozenset({"index", "indices", "offsets", "batch_sizes", "repeats", "mask", "condition"})
"""Arguments that are integers or booleans by definition: they do not count where values disagree."""
_MAJORITY = 0.5
"""A dtype with more than this share of all numbers is the dtype of the model, or of the run."""


_ACCIDENTS = frozenset({"factory", "parameter", "conversion", "load", "worker", "promotion", "input"})
"""Kinds of origin that decide a dtype without the program naming one."""


@dataclass(frozen=True, slots=True)
class Majority:
    """The dtype of most numbers in the parameters, without those parameters whose dtype is in question."""

    dtype: str
    share: float
    scope: str
    """Whose parameters: ``model`` or ``program's models``."""
    shown: str
    """The dtype as the reason names it; for complex operands it is the real weights' dtype."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The dtype that an operation was meant to have, the fact that shows it, and the principle that says so."""

    expected: str | None
    """None where no operand was seen."""
    reason: str = ""
    principle: str = ""
    although: bool = False
    """Whether the reason contradicts what the culprit is, and does not only add to it."""


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
        named = {dtype for _, dtype in self.refused.dtypes}
        if self.refused.wants == "agree" and floating and len(named) == 2 and named <= FLOATING:
            return floating  # it is not about the integers: what else it names was made inside of the call
        tensors = tuple(
            w
            for w in self.refused.witnesses
            if not w.dtype.startswith("python") and w.argument.split("[")[0] not in POINTERS
        )
        # class numbers take no side where a loss's other operands disagree already
        values = tuple(w for w in tensors if w.argument != "target" or w.dtype in FLOATING)
        tensors = values if len({w.dtype for w in values}) > 1 else tensors
        return tensors if len({w.dtype for w in tensors}) > 1 else floating or tensors

    @cached_property
    def present(self) -> frozenset[str]:
        """The dtypes of the sides."""
        return frozenset(w.dtype for w in self.sides)

    def other(self, dtype: str) -> str:
        """The other one of exactly two dtypes that are present."""
        return next(iter(self.present - {dtype}))

    def chose(self, witness: Witness) -> bool:
        """Whether the program or autocast chose an operand's dtype, and no default did."""
        line = graph.lineage(self.recording, witness.event)
        return line is not None and (line.root.explicit or line.root.how not in _ACCIDENTS)

    @cached_property
    def majority(self) -> Majority | None:
        """The dtype of most parameters of the model, else of the run; None where none has most of them.

        None, too, where two dtypes are present and neither is the majority's: such a call (a loss) has little to do
        with the model.
        """
        complexes = len(self.present) > 1 and all(dtype.startswith("complex") for dtype in self.present)
        scope, sizes = "model", self._undisputed(complexes)
        if not sizes:
            scope, sizes = "program's models", self._of_run()
        sizes = +sizes
        if not sizes:
            return None
        dtype, size = sizes.most_common(1)[0]
        share = size / sum(sizes.values())
        if share <= _MAJORITY or dtype not in self.present and len(self.present) > 1:
            return None
        return Majority(dtype, share, scope, COUNTERPART.get(dtype, dtype) if complexes else dtype)

    def _undisputed(self, complexes: bool) -> Counter[str]:
        """How many numbers of each dtype are in the model's parameters that are no operands here and gave none its
        dtype, and did not come late to a model that was cast.

        A parameter still counts if it shares an operand's cast with a whole model, this or another one. Casting a
        module leaves its complex weights as they are, so where complex numbers disagree, the real weights are counted.
        """
        disputed = {w.name for w in self.sides if w.name}
        shared = Counter(p.event for p in self.refused.model) | Counter(p.event for p in self.recording.parameters)
        parties = {n for w in self.sides for n in graph.events_above(self.recording, w.event) if shared[n] == 1}
        sizes: Counter[str] = Counter()
        for p in self.refused.model:
            if p.name not in disputed and p.event not in parties and not self._came_late(p):
                sizes[COUNTERPART.get(p.dtype, p.dtype) if complexes else p.dtype] += p.size
        return sizes

    def _came_late(self, parameter: Parameter) -> bool:
        """Whether a parameter was put into a module, in a default dtype, after all of the module had been cast.

        It says nothing of what the model should be. A head beside a part that was cast is none of that part.
        """
        events, made = self.recording.events, parameter.event
        if made < 0 or events[made].explicit or events[made].how not in ("parameter", "factory"):
            return False
        return any(cast < made and parameter.name.startswith(within) for cast, within in self._casts)

    @cached_property
    def _casts(self) -> tuple[tuple[int, str], ...]:
        """The casts that several parameters of the model got their dtype from, each with the name, ending in a dot, of
        the innermost module that holds all of these."""
        events, names = self.recording.events, dict[int, list[str]]()
        for p in self.refused.model:
            if p.event >= 0 and events[p.event].how == "cast" and events[p.event].explicit:
                names.setdefault(p.event, []).append(p.name)
        shared = ((event, commonprefix(found)) for event, found in names.items() if len(found) > 1)
        return tuple((event, prefix[: prefix.rfind(".") + 1]) for event, prefix in shared)

    def _of_run(self) -> Counter[str]:
        """How many numbers of each dtype all live parameters held, without the operands of this call."""
        sizes = Counter(dict(self.refused.run))
        for w in self.sides:
            if w.holder == "parameter":
                sizes[w.dtype] -= prod(w.shape)
        return sizes
