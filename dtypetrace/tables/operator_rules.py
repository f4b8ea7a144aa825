"""What every operator does with dtypes: which result it returns, or with which kind of message it refuses.

The rules are in ``operator_rules.json``, measured from real kernels by ``make dtype-rules`` and written
in the language of :mod:`.rule_language`. Where the table has no rule, or the rule needs something that is not known
about the call, the answer is :class:`~.rule_language.Unknown`. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from .rule_language import Assumed, Call, Gives, Prediction, Unknown, kinds, outcomes

_OPEN = "it depends on arguments that are not known"
MOST_RECORDED = 64
"""How many operands of an op are recorded."""
TABLE = Path(__file__).with_name("operator_rules.json")
ELEMENT_BY_ELEMENT = ("_foreach_", "_fused_")
"""Operators on lists of tensors that treat each position of their lists separately."""


def elements(name: str, count: int, measured: frozenset[int]) -> Iterator[list[tuple[int, ...]]]:
    """How the operands may be arranged in lists of equal length: the operands of each position, list by list.

    ``measured``: the numbers of lists that the operator was measured with. A last tensor outside all lists belongs to
    every position.

    >>> list(elements("_foreach_add.List", 4, frozenset({2})))
    [[(0, 2), (1, 3)]]
    >>> list(elements("_foreach_mul.Tensor", 3, frozenset({2})))
    [[(0, 2), (1, 2)]]
    """
    alone = 1 if name.endswith(".Tensor") else 0
    for lists in sorted(measured):
        length, left = divmod(count - alone, lists - alone) if lists > alone else (0, 1)
        if length and not left:
            shared = (count - 1,) * alone
            yield [tuple(range(n, count - alone, length)) + shared for n in range(length)]


# ---------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class _Entry:
    """The rule of one function or operator."""

    usual: str
    counts: frozenset[int]
    """The numbers of operands that it was measured with; empty where it takes lists."""
    other: str = ""
    """The rule for other kinds of operands than the usual ones; empty where it is the same."""
    kinds: frozenset[str] = frozenset()
    """The usual kinds, see :func:`kinds`."""


class Table:
    """Rules of all operators, as measured by one build of torch on one device."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.torch: str = data["torch"]
        self.device: str = data["device"]
        self._measured = frozenset(data["dtypes"])
        self._entries: dict[str, _Entry] = {}
        for name, written in data["rules"].items():
            counts, usual, *unusual = written.split(" | ")
            usual_kinds, other = unusual or ("", "")
            known = frozenset(map(int, counts.split())) if counts != "any" else frozenset[int]()
            self._entries[name] = _Entry(usual, known, other, frozenset(usual_kinds.split()))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """Every function and operator that was measured."""
        return tuple(self._entries)

    def rule(self, name: str, call: Call) -> str | None:
        """The rule for a call of a function (``conv2d``) or an operator (``addmm.default``), None where it was not
        measured."""
        entry = self._entry(name)
        if entry is None:
            return None
        return entry.usual if not entry.other or kinds(call) in entry.kinds else entry.other

    def _entry(self, name: str) -> _Entry | None:
        """The rule of a name. Inference mode does not take functions apart: the operator ``linear.default`` is then the
        function ``linear``."""
        function, _, overload = name.partition(".")
        return self._entries.get(name) or (None if "out" in overload else self._entries.get(function))

    def _why_unknown(self, name: str, call: Call) -> str:
        """Why nothing can be said about a call; empty where something can."""
        entry = self._entry(name)
        if entry is None:
            return "no rule was measured for this operator"
        if name.startswith(ELEMENT_BY_ELEMENT):
            return "" if len(call.operands) < MOST_RECORDED else "its lists are longer than what is recorded"
        if entry.counts and len(call.operands) not in entry.counts:
            return f"it was not measured with {len(call.operands)} tensors"
        foreign = next((g.dtype for g in call.operands if g.dtype not in self._measured), None)
        return f"it was not measured with {foreign}" if foreign else ""

    def possible(self, name: str, call: Call) -> dict[Assumed, Prediction]:
        """All possible outcomes, each with what it assumes about the unknown facts of the call; one entry where
        everything is known."""
        why = self._why_unknown(name, call)
        if why:
            return {(): Unknown(why)}
        if name.startswith(ELEMENT_BY_ELEMENT):
            return {(): self._each(name, call)}
        return dict(outcomes(self.rule(name, call) or "", call))

    def _each(self, name: str, call: Call) -> Prediction:
        """What an operator on lists does: the same as at each of their positions. It is refused where one position
        is."""
        found: set[Prediction] = set()
        for positions in elements(name, len(call.operands), self._entries[name].counts):
            made: list[str] = []
            refused: Prediction | None = None
            for position in positions:
                one = replace(call, operands=tuple(call.operands[n] for n in position))
                answers = {outcome for _, outcome in outcomes(self.rule(name, one) or "", one)}
                answer = answers.pop() if len(answers) == 1 else Unknown(_OPEN)
                if isinstance(answer, Gives):
                    made += answer.dtypes
                else:
                    refused = refused or answer
            found.add(refused or Gives(tuple(made)))
        return found.pop() if len(found) == 1 else Unknown("it is not known which operand is in which list")

    def predict(self, name: str, call: Call) -> Prediction:
        """The result of a call, or the kind of message that it is refused with.

        >>> half, wide = Given("float16", 2), Given("float32", 2)
        >>> table().predict("mm.default", Call((half, wide)))
        Refuses(code='DT101')
        >>> table().predict("add.Tensor", Call((half, wide)))
        Gives(dtypes=('float32',))
        """
        found = set(self.possible(name, call).values())
        return found.pop() if len(found) == 1 else Unknown(_OPEN)


@cache
def table() -> Table:
    """The table that is checked in: torch's CPU kernels."""
    return Table(json.loads(TABLE.read_text("utf-8")))
