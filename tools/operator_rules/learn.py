"""Finds the shortest rule that says what was seen of an operator: a list of conditions, each with what happens where it
holds.

First all calls are explained by one outcome, if they can be. Else the condition is looked for that explains most of the
calls that are left, by itself or with a second one, and so on. Conditions about dtypes come before those about shapes,
and these before those about other arguments, so that a rule says the plainest thing that fits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dtypetrace.tables import rule_language
from dtypetrace.tables.dtypes import DTYPES
from dtypetrace.tables.rule_language import Call, condition, giving

from .observe import Seen

_SLOTS = 6
_MOST_CASES = 24
_MOST_VALUES = 10
_FEW_CASES = 3
_PAIRED = 160
"""Conditions that are tried in pairs: the first ones, which are about dtypes."""

RESULTS = (
    "#0",
    "promote",
    "promote+",
    "promote float",
    "promote+ float",
    "#1",
    "#-1",
    "#2",
    "#3",
    "#4",
    "#5",
    "dtype",
    "promote sum",
    "of0 sum",
    "of0 real",
    "promote real",
    "of0 complex",
    "promote complex",
    "of0 float",
    "of0 accumulate",
    "promote accumulate",
    "of0 accumulate float",
    "of0 real float",
    *DTYPES,
)
"""Every expression that a rule may return, the simplest first."""


@dataclass(frozen=True)
class Rule:
    usual: str
    """What happens where operands are of the usual kinds: only precisions differ."""
    unusual: str
    """What happens with integers in place of floats, and so on; empty where it is the same."""
    kinds: tuple[str, ...]
    """The usual kinds, see ``rule_language.kinds``."""
    counts: tuple[int, ...]
    """The numbers of operands that were seen."""
    lists: bool = False
    """Whether it takes lists of tensors."""
    unexplained: int = 0
    """Calls that looked alike and ended otherwise, or that no condition separates."""


def learn(seen: Sequence[Seen]) -> Rule:
    """The rule of one function or operator."""
    distinct = list({(_key(s), s.dtypes, s.code): s for s in _even(list(seen))}.values())
    ambiguous = _ambiguous(distinct)
    clear = [s if _key(s) not in ambiguous else replace(s, dtypes=(), code="?") for s in distinct]
    usual = {rule_language.kinds(s.call) for s in seen if s.usual}
    counts = tuple(sorted({len(s.call.operands) for s in seen}))
    lists = any(s.lists for s in seen)
    cases = _Search(clear).cases() if clear else ["?"]
    if len(cases) <= _FEW_CASES:
        return Rule("; ".join(cases), "", tuple(sorted(usual)), counts, lists, len(ambiguous))
    parts = [[s for s in clear if (rule_language.kinds(s.call) in usual) is which] for which in (True, False)]
    texts = ["; ".join(_Search(part).cases()) if part else "?" for part in parts]
    return Rule(*texts, tuple(sorted(usual)), counts, lists, len(ambiguous))


def _key(s: Seen) -> tuple[object, ...]:
    c = s.call
    return c.operands, c.numbers, c.options, c.dtype, c.grad, c.outs


def _ambiguous(seen: Sequence[Seen]) -> set[tuple[object, ...]]:
    """Calls that no condition separates and that ended differently."""
    first: dict[tuple[object, ...], tuple[object, ...]] = {}
    return {_key(s) for s in seen if first.setdefault(_key(s), (s.dtypes, s.code)) != (s.dtypes, s.code)}


def _even(seen: list[Seen]) -> list[Seen]:
    """Results as one dtype, where all results of every call have the same."""
    if any(len(set(s.dtypes)) > 1 for s in seen) or not any(len(s.dtypes) > 1 for s in seen):
        return seen
    return [replace(s, dtypes=s.dtypes[:1]) for s in seen]


class _Search:
    """Calls and conditions as bits of integers: bit n of a mask stands for call n."""

    def __init__(self, seen: Sequence[Seen]) -> None:
        self.seen = seen
        self.everything = (1 << len(seen)) - 1
        self.refused: dict[str, int] = {}
        self.length: dict[int, int] = {}
        for n, s in enumerate(seen):
            if s.code:
                self.refused[s.code] = self.refused.get(s.code, 0) | 1 << n
            else:
                self.length[len(s.dtypes)] = self.length.get(len(s.dtypes), 0) | 1 << n
        most = max(self.length, default=0)
        self.fits = [self._fitting(position) for position in range(most)]
        self.conditions = self._conditions()

    def _fitting(self, position: int) -> list[tuple[str, int]]:
        """For each expression, the calls whose result at a position it gives; refused calls and shorter results fit
        none."""
        found = []
        for words in RESULTS:
            gives, mask = giving(words), 0
            for n, s in enumerate(self.seen):
                if position < len(s.dtypes) and gives(s.call) == s.dtypes[position]:
                    mask |= 1 << n
            if mask:
                found.append((words, mask))
        return found

    def _conditions(self) -> list[tuple[int, str, int]]:
        """Cost, words, and the calls in which each condition holds; of those that hold in the same calls, the
        plainest."""
        found, masks = [], set()
        for cost, words in _vocabulary([s.call for s in self.seen]):
            test, mask = condition(words), 0
            for n, s in enumerate(self.seen):
                if test(s.call):
                    mask |= 1 << n
            if mask and mask != self.everything and mask not in masks:
                masks.add(mask)
                found.append((cost, words, mask))
        return found

    def outcome(self, calls: int) -> str | None:
        """What happened in all of some calls, None where that is not one thing."""
        for code, mask in self.refused.items():
            if calls & mask:
                return (f"!{code}" if code != "?" else code) if not calls & ~mask else None
        results = []
        for position in range(max((n for n, mask in self.length.items() if mask & calls), default=0)):
            there = calls & ~sum(mask for n, mask in self.length.items() if n <= position)
            words = next((words for words, mask in self.fits[position] if not there & ~mask), None)
            if words is None:
                return None
            results.append(words)
        return ", ".join(results) or "nothing"

    def cases(self) -> list[str]:
        """The cases of the rule: the plainest list of up to three, else the condition that explains most before it."""
        left, found = self.everything, []
        while left and len(found) < _MOST_CASES:
            short = self._shortest(left)
            if short is not None:
                return [*found, *short]
            best = self._best(left)
            if best is None:
                break
            words, mask, outcome = best
            found.append(f"{words}: {outcome}")
            left &= ~mask
        return [*found, "?"]

    def _pure(self, left: int) -> list[tuple[int, str, int, str]]:
        """The conditions that one thing follows from in the calls that are left: cost, words, calls, outcome."""
        found = []
        for cost, words, mask in self.conditions:
            covered = mask & left
            if covered and covered != left and (outcome := self.outcome(covered)) is not None:
                found.append((cost, words, covered, outcome))
        return found

    def _shortest(self, left: int) -> list[str] | None:
        """The plainest list of at most three cases that explains all that is left."""
        whole = self.outcome(left)
        if whole is not None:
            return [whole]
        first = self._pure(left)
        two = [(c, [f"{w}: {o}", rest]) for c, w, m, o in first if (rest := self.outcome(left & ~m)) is not None]
        if two:
            return min(two, key=lambda found: found[0])[1]
        best: tuple[int, list[str]] | None = None
        for cost, words, mask, outcome in first:
            if best is not None and cost >= best[0]:
                continue
            for more, others, covered, then in self._pure(left & ~mask):
                if best is not None and cost + more >= best[0]:
                    continue
                rest = self.outcome(left & ~mask & ~covered)
                if rest is not None:
                    best = cost + more, [f"{words}: {outcome}", f"{others}: {then}", rest]
        return best[1] if best is not None else None

    def _best(self, left: int) -> tuple[str, int, str] | None:
        """The condition that explains most of the calls that are left, for its cost; two together where none does
        alone."""
        best = max(self._pure(left), key=lambda one: one[2].bit_count() / (1 + one[0]), default=None)
        if best is not None:
            return best[1:]
        found: tuple[str, int, str] | None = None
        for (_, one, a), (_, other, b) in itertools.combinations(self.conditions[:_PAIRED], 2):
            covered = a & b & left
            if covered and (found is None or covered.bit_count() > found[1].bit_count()):
                outcome = self.outcome(covered)
                if outcome is not None:
                    found = f"{one} & {other}", covered, outcome
        return found


_RELATION, _KIND, _DTYPE, _SHAPE, _ARGUMENT = 1, 2, 4, 5, 7
"""What a condition costs: the less, the more it is worth believing."""


def _vocabulary(calls: Sequence[Call]) -> Iterable[tuple[int, str]]:
    """The conditions that are tried with what each costs, the plainest first."""
    slots = [*range(min(max((len(c.operands) for c in calls), default=0), _SLOTS)), -1]
    dtypes = sorted({g.dtype for c in calls for g in c.operands})
    relations = [
        "disagree",
        "no floating",
        "loses 0",
        "loses -1",
        "disagree all",
        "disagree dims",
        "loses+ 0",
        "loses+ -1",
        "changes 0",
        "changes -1",
        "overflows",
    ]
    relations += [f"differ {i} {j}" for i, j in itertools.combinations(slots, 2)]
    relations += [f"not {words}" for words in relations]
    kinds = ("floating", "real", "complex", "integer", "half", "index", "mask")
    yield from ((_RELATION, words) for words in relations)
    yield from ((_KIND, f"{which} {kind}") for which in ("any", "all", *slots) for kind in kinds)
    yield from ((_KIND, f"kinds {words}") for words in sorted({rule_language.kinds(c) for c in calls}))
    yield from ((_DTYPE, f"{which} {dtype}") for which in ("computes", "any", "all", *slots) for dtype in dtypes)
    shapes = ["any empty", *(f"count {n}" for n in sorted({len(c.operands) for c in calls}))]
    shapes += [f"{i} {shape}" for i in slots for shape in ("empty", "scalar")]
    for i in slots[:4]:
        shapes += [
            f"{i} rank {n}"
            for n in sorted({c.operands[i].rank for c in calls if -len(c.operands) <= i < len(c.operands)})
        ]
    yield from ((_SHAPE, words) for words in shapes)
    yield from ((_ARGUMENT, words) for words in _arguments(calls))


def _arguments(calls: Sequence[Call]) -> Iterable[str]:
    yield "named"
    yield from (f"named {d}" for d in sorted({c.dtype for c in calls if c.dtype}))
    yield from (f"number {kind}" for kind in ("int", "float", "complex"))
    values: dict[str, set[str]] = {}
    for c in calls:
        for name, value in c.options or ():
            values.setdefault(name, set()).add(value)
    yield from (f"text {name}" for name in sorted(values))
    yield from (f"not text {name}" for name in sorted(values))
    few = [name for name in sorted(values) if len(values[name]) <= _MOST_VALUES]
    yield from (f"option {name}={value}" for name in few for value in sorted(values[name]))
    yield from (f"option {name}" for name in sorted(values))
    yield "grad"
    yield "not grad"
