"""The language in which the dtype rules of operators are written: what a call is, results, conditions, cases.

A rule is a list of cases, tried in order; the first case whose condition holds decides::

    disagree: !DT101; #0            refused where floating operands disagree, else the first operand's dtype
    loses 0: !DT111; #0             in place: refused where the result's kind does not fit the destination
    promote, int64                  two results

Operands are numbered as they are recorded: the tensors of a call in the order of its arguments, those in lists one by
one. The rules of each operator are in :mod:`.operator_rules`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import inf

from .dtypes import DTYPES, FLOATING, HALF
from .promotion import Category, category, result_type


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
    """What is known about a call. None means not known: for recorded ops, only the operands are known."""

    operands: tuple[Given, ...]
    numbers: tuple[Number, ...] | None = None
    options: tuple[tuple[str, str], ...] | None = None
    """Arguments that are not tensors, by name or position: ``(("reduction", "mean"),)``."""
    dtype: str | None = None
    """The dtype that the call names, empty for none, None where unknown."""
    grad: bool | None = None
    """Whether autograd records it."""
    outs: int = 0
    """How many of its last operands are ``out=``: they are written to and take no part in promotion."""

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
        """Like :attr:`promoted`, including Python numbers. Unknown numbers are assumed to change nothing, which is true
        for floating operands."""
        return self._promoted(tuple(n.kind for n in self.numbers or ()))

    def _promoted(self, numbers: tuple[str, ...]) -> str | None:
        flat = tuple(g.dtype for g in self.inputs if g.rank)
        return _result_type(flat, tuple(g.dtype for g in self.inputs if not g.rank), numbers)


@cache
def _result_type(flat: tuple[str, ...], point: tuple[str, ...], numbers: tuple[str, ...]) -> str | None:
    return result_type(flat, point, numbers)


_LETTERS = {Category.BOOL: "b", Category.INTEGER: "o", Category.FLOAT: "f", Category.COMPLEX: "c"}


def _letter(dtype: str) -> str:
    return "i" if dtype == "int64" else _LETTERS.get(category(dtype), "q")


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
    """The dtypes of the results. A single one applies to any number of results."""

    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuses:
    """The finding code for a message of this kind (``tables/refusals.json``)."""

    code: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why the table has no answer."""

    why: str


Prediction = Gives | Refuses | Unknown

# ---------------------------------------------------------------- results

_Giving = Callable[[Call], str | None]


def _floated(dtype: str | None) -> str | None:
    return "float32" if dtype is not None and category(dtype) < Category.FLOAT else dtype


def _summed(dtype: str | None) -> str | None:
    return "int64" if dtype is not None and category(dtype) < Category.FLOAT else dtype


def _real(dtype: str | None) -> str | None:
    return DTYPES[dtype].counterpart if dtype is not None and category(dtype) == Category.COMPLEX else dtype


def _complex(dtype: str | None) -> str | None:
    if dtype is None or category(dtype) == Category.COMPLEX:
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
"""What becomes of the promoted dtype: integers become float32, sums of integers int64; half precision accumulates in
float32."""


def giving(words: str) -> _Giving:
    """The function, from a call to a result's dtype, for one expression of the rules."""
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


# ---------------------------------------------------------------- conditions

_Holds = Callable[[Call], bool | None]


def _at(index: int, holds: Callable[[Given], bool]) -> _Holds:
    return lambda call: -len(call.operands) <= index < len(call.operands) and holds(call.operands[index])


_KINDS: dict[str, Callable[[Given], bool]] = {
    "floating": lambda g: g.dtype in FLOATING,
    "real": lambda g: category(g.dtype) == Category.FLOAT,
    "complex": lambda g: category(g.dtype) == Category.COMPLEX,
    "integer": lambda g: category(g.dtype) in (Category.BOOL, Category.INTEGER),
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
    """Whether an argument is a word: ``padding="same"``, not ``padding=1``."""
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


def _negated(words: str) -> _Holds:
    inner = condition(words)
    return lambda call: None if (known := inner(call)) is None else not known


def _any(words: str) -> _Holds:
    kind = _kind(words)
    return lambda call: any(kind(g) for g in call.inputs)


def _all(words: str) -> _Holds:
    kind = _kind(words)
    return lambda call: all(kind(g) for g in call.inputs)


_FORMS: dict[str, Callable[[str], _Holds]] = {
    "not": _negated,
    "any": _any,
    "all": _all,
    "count": lambda words: lambda call: len(call.operands) == int(words),
    "differ": lambda words: _differ(*map(int, words.split())),
    "loses": lambda words: _loses(int(words), False),
    "loses+": lambda words: _loses(int(words), True),
    "changes": lambda words: _changes(int(words)),
    "computes": lambda words: lambda call: call.promoted == words,
    "number": _has_number,
    "kinds": lambda words: lambda call: kinds(call) == words,
    "option": _option,
    "text": _text,
    "named": lambda words: lambda call: None if call.dtype is None else call.dtype == words,
}
"""How a condition is read, by its first word."""


@cache
def condition(words: str) -> _Holds:
    """The test for one condition of the rules; it returns None where the call does not say."""
    if words in _PLAIN:
        return _PLAIN[words]
    head, _, rest = words.partition(" ")
    if head in _FORMS:
        return _FORMS[head](rest)
    if head.lstrip("-").isdigit():
        return _at(int(head), _kind(rest))
    raise ValueError(f"no such condition: {words}")


# ---------------------------------------------------------------- rules


@dataclass(frozen=True)
class RuleCase:
    """One case: if every condition holds, this is the outcome."""

    conditions: tuple[str, ...]
    outcome: str
    tests: tuple[_Holds, ...] = field(repr=False, compare=False, default=())
    results: tuple[_Giving, ...] = field(repr=False, compare=False, default=())

    @classmethod
    def read(cls, text: str) -> RuleCase:
        before, _, outcome = text.rpartition(": ")
        conditions = tuple(before.split(" & ")) if before else ()
        results = () if outcome.startswith(("!", "?", "nothing")) else tuple(giving(w) for w in outcome.split(", "))
        return cls(conditions, outcome, tuple(condition(c) for c in conditions), results)

    def __str__(self) -> str:
        return f"{' & '.join(self.conditions)}: {self.outcome}" if self.conditions else self.outcome

    def happens(self, call: Call) -> Prediction:
        if self.outcome.startswith("!"):
            return Refuses(self.outcome[1:])
        if self.outcome.startswith("?"):
            return Unknown("kernels were seen to do both")
        made = tuple(result(call) for result in self.results)
        return Gives(made) if None not in made else Unknown("a result's dtype is not known")  # type: ignore[arg-type]


@cache
def read(rule: str) -> tuple[RuleCase, ...]:
    return tuple(RuleCase.read(case) for case in rule.split("; "))


Assumed = tuple[tuple[str, bool], ...]


def outcomes(rule: str, call: Call) -> Iterator[tuple[Assumed, Prediction]]:
    """All possible outcomes of a rule, each with what it assumes about the unknown facts of the call."""
    yield from _outcomes(read(rule), 0, call, {})


def _outcomes(
    cases: tuple[RuleCase, ...], at: int, call: Call, assumed: dict[str, bool]
) -> Iterator[tuple[Assumed, Prediction]]:
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
