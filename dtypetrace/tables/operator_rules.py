"""What every operator does with dtypes: which result it gives, or with which family of message it refuses.

The rules stand in ``operator_rules.json``, measured from real kernels by ``tools/operator_rules`` (``make
dtype-rules``). Each
is a list of cases, tried in order; the first one whose condition holds decides::

    disagree: !DT101; #0            refused where floating operands disagree, else the first operand's dtype
    loses 0: !DT111; #0             in place: refused where the result's kind does not fit the destination
    promote, int64                  two results

Operands are numbered as they are recorded: the tensors of a call in the order of its arguments, those in lists one
by one.
Where the table has no rule, or the rule asks for something that is not known of the call, the answer is
:class:`Unknown`.
Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import inf
from pathlib import Path
from typing import Any

from .dtypes import DTYPES, FLOATING, HALF
from .promotion import category, result_type

_OPEN = "it depends on arguments that are not known"
MOST_RECORDED = 64
"""So many operands of an op are recorded."""
TABLE = Path(__file__).with_name("operator_rules.json")


@dataclass(frozen=True, slots=True)
class Given:
    """One tensor operand: its dtype, number of dimensions, and whether it holds no number at all."""

    dtype: str
    rank: int = 1
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """One Python number among the arguments: its kind (``bool int float complex``) and magnitude."""

    kind: str
    size: float = 0.0


@dataclass(frozen=True)
class Call:
    """What is known of a call. None stands for what is not known of it: recorded ops have operands alone."""

    operands: tuple[Given, ...]
    numbers: tuple[Number, ...] | None = None
    options: tuple[tuple[str, str], ...] | None = None
    """Arguments that are no tensors, by name or position: ``(("reduction", "mean"),)``."""
    dtype: str | None = None
    """The dtype that the call names, empty for none, None where that is not known."""
    grad: bool | None = None
    """Whether autograd records it."""
    outs: int = 0
    """How many of its last operands are ``out=``: they are written and take no part in promotion."""

    @cached_property
    def inputs(self) -> tuple[Given, ...]:
        return self.operands[: len(self.operands) - self.outs]

    @cached_property
    def floating(self) -> tuple[str, ...]:
        return tuple(g.dtype for g in self.inputs if g.dtype in FLOATING)

    @cached_property
    def promoted(self) -> str | None:
        return self._promoted(())

    @cached_property
    def promoted_with_numbers(self) -> str | None:
        """As :attr:`promoted`, Python numbers included. Where they are not known they are taken to change nothing,
        which is so for
        floating operands."""
        return self._promoted(tuple(n.kind for n in self.numbers or ()))

    def _promoted(self, numbers: tuple[str, ...]) -> str | None:
        flat = tuple(g.dtype for g in self.inputs if g.rank)
        return _result_type(flat, tuple(g.dtype for g in self.inputs if not g.rank), numbers)


@cache
def _result_type(flat: tuple[str, ...], point: tuple[str, ...], numbers: tuple[str, ...]) -> str | None:
    return result_type(flat, point, numbers)


def _letter(dtype: str) -> str:
    return "i" if dtype == "int64" else {0: "b", 1: "o", 2: "f", 3: "c"}.get(category(dtype), "q")


def kinds(call: Call) -> str:
    """The kinds of a call's operands, in order, repeats left out: ``f`` float, ``i`` int64, ``b`` bool, ``c``
    complex, ``o`` other integers.

    >>> kinds(Call((Given("bool"), Given("float16"), Given("float32"))))
    'bf'
    """
    letters = [_letter(g.dtype) for g in call.operands]
    return "".join(a for a, before in zip(letters, ["", *letters]) if a != before)


@dataclass(frozen=True, slots=True)
class Gives:
    """The dtypes of the results. A single one stands for any number of results of that dtype."""

    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuses:
    """The finding code that a message of this family gets (``tables/refusals.json``)."""

    code: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why the table does not say."""

    why: str


Outcome = Gives | Refuses | Unknown

# ---------------------------------------------------------------- results

_Giving = Callable[[Call], str | None]


def _floated(dtype: str | None) -> str | None:
    return "float32" if dtype is not None and category(dtype) < 2 else dtype


def _summed(dtype: str | None) -> str | None:
    return "int64" if dtype is not None and category(dtype) < 2 else dtype


def _real(dtype: str | None) -> str | None:
    return DTYPES[dtype].counterpart if dtype is not None and category(dtype) == 3 else dtype


def _complex(dtype: str | None) -> str | None:
    if dtype is None or category(dtype) == 3:
        return dtype
    return DTYPES[dtype].counterpart or "complex64"


def _accumulated(dtype: str | None) -> str | None:
    return "float32" if dtype in HALF else dtype


def _operand(index: int) -> _Giving:
    return lambda call: call.operands[index].dtype if -len(call.operands) <= index < len(call.operands) else None


_OF_PROMOTED: dict[str, Callable[[str | None], str | None]] = {
    "": lambda dtype: dtype,
    "float": _floated,
    "sum": _summed,
    "real": _real,
    "complex": lambda dtype: _complex(_floated(dtype)),
    "accumulate": _accumulated,
    "accumulate float": lambda dtype: _accumulated(_floated(dtype)),
    "real float": lambda dtype: _real(_floated(dtype)),
}
"""What is made of the promoted dtype: integers become float32; sums of integers int64; half accumulates in float32."""


def giving(words: str) -> _Giving:
    """The function from a call to a result's dtype that one expression of the rules stands for."""
    if words.startswith("#"):
        return _operand(int(words[1:]))
    if words == "dtype":
        return lambda call: call.dtype or None
    if words in DTYPES:
        return lambda call: words
    base, _, change = words.partition(" ")
    of = _OF_PROMOTED[change]
    if base == "promote":
        return lambda call: of(call.promoted)
    if base == "promote+":
        return lambda call: of(call.promoted_with_numbers)
    if base == "of0":
        first = _operand(0)
        return lambda call: of(first(call))
    raise ValueError(f"no such result: {words}")


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
"""Every expression that a rule may give, the plainest first."""

# ---------------------------------------------------------------- conditions

_Holds = Callable[[Call], bool | None]


def _at(index: int, holds: Callable[[Given], bool]) -> _Holds:
    return lambda call: -len(call.operands) <= index < len(call.operands) and holds(call.operands[index])


_KINDS: dict[str, Callable[[Given], bool]] = {
    "floating": lambda g: g.dtype in FLOATING,
    "real": lambda g: category(g.dtype) == 2,
    "complex": lambda g: category(g.dtype) == 3,
    "integer": lambda g: category(g.dtype) in (0, 1),
    "half": lambda g: g.dtype in HALF,
    "index": lambda g: g.dtype in ("int64", "int32"),
    "mask": lambda g: g.dtype in ("bool", "uint8"),
    "scalar": lambda g: g.rank == 0,
    "empty": lambda g: g.empty,
}


def _kind(words: str) -> Callable[[Given], bool]:
    if words.startswith("rank "):
        return lambda g: g.rank == int(words[5:])
    return _KINDS.get(words) or (lambda g: g.dtype == words)


def _differ(i: int, j: int) -> _Holds:
    def holds(call: Call) -> bool:
        count = len(call.operands)
        return -count <= i < count and -count <= j < count and call.operands[i].dtype != call.operands[j].dtype

    return holds


def _loses(i: int, numbers: bool) -> _Holds:
    """Whether the promoted dtype cannot be written into an operand: its category is higher."""

    def holds(call: Call) -> bool:
        made = call.promoted_with_numbers if numbers else call.promoted
        return made is not None and bool(call.operands) and category(made) > category(call.operands[i].dtype)

    return holds


def _changes(i: int) -> _Holds:
    return lambda call: bool(call.operands) and call.promoted not in (None, call.operands[i].dtype)


def _overflows(call: Call) -> bool | None:
    if call.numbers is None:
        return None
    known = DTYPES.get(call.operands[0].dtype) if call.operands else None
    return known is not None and any(known.largest < n.size < inf for n in call.numbers)


def _has_number(kind: str) -> _Holds:
    return lambda call: None if call.numbers is None else any(n.kind == kind for n in call.numbers)


def _option(words: str) -> _Holds:
    name, equals, value = words.partition("=")

    def holds(call: Call) -> bool | None:
        if call.options is None:
            return None
        return any(known == name and (not equals or value == given) for known, given in call.options)

    return holds


def _text(name: str) -> _Holds:
    """Whether an argument is a word: ``padding="same"`` rather than ``padding=1``."""
    return lambda call: None if call.options is None else any(n == name and v[:1].isalpha() for n, v in call.options)


_PLAIN: dict[str, _Holds] = {
    "always": lambda call: True,
    "disagree": lambda call: len(set(call.floating)) > 1,
    "disagree all": lambda call: len({g.dtype for g in call.inputs}) > 1,
    "disagree dims": lambda call: len({g.dtype for g in call.inputs if g.rank}) > 1,
    "no floating": lambda call: not call.floating,
    "any empty": lambda call: any(g.empty for g in call.inputs),
    "overflows": _overflows,
    "grad": lambda call: call.grad,
    "named": lambda call: None if call.dtype is None else bool(call.dtype),
}


@cache
def condition(words: str) -> _Holds:  # noqa: C901 - one branch for each form of a condition
    """The test that one condition of the rules stands for; it answers None where the call does not tell."""
    if words in _PLAIN:
        return _PLAIN[words]
    head, _, rest = words.partition(" ")
    if head == "not":
        inner = condition(rest)
        return lambda call: None if (known := inner(call)) is None else not known
    if head == "any":
        kind = _kind(rest)
        return lambda call: any(kind(g) for g in call.inputs)
    if head == "all":
        kind = _kind(rest)
        return lambda call: all(kind(g) for g in call.inputs)
    if head == "count":
        return lambda call: len(call.operands) == int(rest)
    if head == "differ":
        i, j = map(int, rest.split())
        return _differ(i, j)
    if head in ("loses", "loses+"):
        return _loses(int(rest), head == "loses+")
    if head == "changes":
        return _changes(int(rest))
    if head == "computes":
        return lambda call: call.promoted == rest
    if head == "number":
        return _has_number(rest)
    if head == "kinds":
        return lambda call: kinds(call) == rest
    if head == "option":
        return _option(rest)
    if head == "text":
        return _text(rest)
    if head == "named":
        return lambda call: None if call.dtype is None else call.dtype == rest
    if head.lstrip("-").isdigit():
        return _at(int(head), _kind(rest))
    raise ValueError(f"no such condition: {words}")


# ---------------------------------------------------------------- rules


@dataclass(frozen=True)
class Case:
    """Where every condition holds, this is what happens."""

    conditions: tuple[str, ...]
    outcome: str
    tests: tuple[_Holds, ...] = field(repr=False, compare=False, default=())
    results: tuple[_Giving, ...] = field(repr=False, compare=False, default=())

    @classmethod
    def read(cls, text: str) -> Case:
        before, _, outcome = text.rpartition(": ")
        conditions = tuple(before.split(" & ")) if before else ()
        results = () if outcome.startswith(("!", "?", "nothing")) else tuple(giving(w) for w in outcome.split(", "))
        return cls(conditions, outcome, tuple(condition(c) for c in conditions), results)

    def __str__(self) -> str:
        return f"{' & '.join(self.conditions)}: {self.outcome}" if self.conditions else self.outcome

    def happens(self, call: Call) -> Outcome:
        if self.outcome.startswith("!"):
            return Refuses(self.outcome[1:])
        if self.outcome.startswith("?"):
            return Unknown("kernels were seen to do both")
        made = tuple(result(call) for result in self.results)
        return Gives(made) if None not in made else Unknown("a result's dtype is not known")  # type: ignore[arg-type]


ELEMENT_BY_ELEMENT = ("_foreach_", "_fused_")
"""Operators on lists of tensors that treat each position of their lists by itself."""


def elements(name: str, count: int, measured: frozenset[int]) -> Iterator[list[tuple[int, ...]]]:
    """The ways in which operands may lie in lists of equal length: the operands of each position, list by list.

    ``measured``: with how many lists the operator was measured. A last tensor outside all lists belongs to every
    position.

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


@cache
def read(rule: str) -> tuple[Case, ...]:
    return tuple(Case.read(case) for case in rule.split("; "))


Assumed = tuple[tuple[str, bool], ...]


def outcomes(rule: str, call: Call) -> Iterator[tuple[Assumed, Outcome]]:
    """Everything that a rule says may happen, each with what was assumed of what is not known of the call."""
    yield from _outcomes(read(rule), 0, call, {})


def _outcomes(
    cases: tuple[Case, ...], at: int, call: Call, assumed: dict[str, bool]
) -> Iterator[tuple[Assumed, Outcome]]:
    for number in range(at, len(cases)):
        case = cases[number]
        known = [assumed.get(c, t(call)) for c, t in zip(case.conditions, case.tests)]
        if False in known:
            continue
        if None in known:
            open_one = case.conditions[known.index(None)]
            for answer in (True, False):
                yield from _outcomes(cases, number, call, assumed | {open_one: answer})
            return
        yield tuple(sorted(assumed.items())), case.happens(call)
        return
    yield tuple(sorted(assumed.items())), Unknown("no case of its rule holds")


# ---------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class _Entry:
    """The rule of one function or operator."""

    usual: str
    counts: frozenset[int]
    """The numbers of operands that it was measured with; none where it takes lists."""
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
        others = {
            name: (rule, frozenset(usual.split()))
            for rule, by_kinds in data["other kinds"].items()
            for usual, names in by_kinds.items()
            for name in names.split()
        }
        self._entries: dict[str, _Entry] = {}
        for rule, by_count in data["rules"].items():
            for counts, names in by_count.items():
                known = frozenset(map(int, counts.split())) if counts != "any" else frozenset[int]()
                for name in names.split():
                    self._entries[name] = _Entry(rule, known, *others.get(name, ()))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """Every function and operator that was measured."""
        return tuple(self._entries)

    def rule(self, name: str, call: Call) -> str | None:
        """The rule for a call of a function (``conv2d``) or an operator (``addmm.default``), None where it was not
        measured."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        return entry.usual if not entry.other or kinds(call) in entry.kinds else entry.other

    def _why_unknown(self, name: str, call: Call) -> str:
        """Why nothing can be said of a call, empty where something can."""
        entry = self._entries.get(name)
        if entry is None:
            return "no rule was measured for this operator"
        if name.startswith(ELEMENT_BY_ELEMENT):
            return "" if len(call.operands) < MOST_RECORDED else "its lists are longer than what is recorded"
        if entry.counts and len(call.operands) not in entry.counts:
            return f"it was not measured with {len(call.operands)} tensors"
        foreign = next((g.dtype for g in call.operands if g.dtype not in self._measured), None)
        return f"it was not measured with {foreign}" if foreign else ""

    def possible(self, name: str, call: Call) -> dict[Assumed, Outcome]:
        """All that may happen, by what is assumed of what is not known of the call; one entry where everything is
        known."""
        why = self._why_unknown(name, call)
        if why:
            return {(): Unknown(why)}
        if name.startswith(ELEMENT_BY_ELEMENT):
            return {(): self._each(name, call)}
        return dict(outcomes(self.rule(name, call) or "", call))

    def _each(self, name: str, call: Call) -> Outcome:
        """What an operator on lists does: as on each of their positions. It is refused where one position is."""
        found: set[Outcome] = set()
        for positions in elements(name, len(call.operands), self._entries[name].counts):
            made: list[str] = []
            refused: Outcome | None = None
            for position in positions:
                one = replace(call, operands=tuple(call.operands[n] for n in position))
                answers = {outcome for _, outcome in outcomes(self.rule(name, one) or "", one)}
                answer = answers.pop() if len(answers) == 1 else Unknown(_OPEN)
                if isinstance(answer, Gives):
                    made += answer.dtypes
                else:
                    refused = refused or answer
            found.add(refused or Gives(tuple(made)))
        return found.pop() if len(found) == 1 else Unknown("its lists are not told apart")

    def predict(self, name: str, call: Call) -> Outcome:
        """What a call gives, or the family of message it is refused with.

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
