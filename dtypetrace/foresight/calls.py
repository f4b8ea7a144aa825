"""What one recorded or refused call does with operands of other dtypes, by the table of operator rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..records import Op, Refused, Witness
from ..tables import operator_rules
from ..tables.dtypes import REAL, wider
from ..tables.operators import ABOVE_DISPATCHER, REFUSED_IN_PYTHON, name_of
from ..tables.rule_language import Call, Given, Gives, Number, Prediction, Refuses, Unknown

NONE: Mapping[int, Any] = MappingProxyType({})
PYTHON = "python "
"""How the dtype of a Python number begins, among the operands of a refused call."""


def predict(op: Op, before: Sequence[str], given: Sequence[str]) -> Prediction:
    """What an op does with other operands, checked against what it did with its own.

    The table may need arguments that are not recorded. Only those of its answers count that agree with what was seen.
    """
    table = operator_rules.table()
    above = ABOVE_DISPATCHER.get(op.op)
    if above is not None and name_of(op).startswith(above):
        outcome = _certain(table, op.op, op, before, given)
        if isinstance(outcome, Refuses):
            return outcome
    return _certain(table, op.aten, op, before, given)


def _certain(table: operator_rules.Table, name: str, op: Op, before: Sequence[str], given: Sequence[str]) -> Prediction:
    first: Prediction | None = None
    for numbers in NUMBERS:
        seen = table.possible(name, replace(_call(op, before), numbers=numbers))
        agreeing = [dict(assumed) for assumed, outcome in seen.items() if _agrees(outcome, op.outputs)]
        first = first or next(iter(seen.values()))
        if agreeing:
            after = table.possible(name, replace(_call(op, given), numbers=numbers))
            found = {outcome for assumed, outcome in after.items() if _fits(dict(assumed), agreeing)}
            return found.pop() if len(found) == 1 else Unknown("it depends on arguments that are not recorded")
    return first if isinstance(first, Unknown) else Unknown("it did something else than the table says")


NUMBERS: tuple[tuple[Number, ...] | None, ...] = (None, (Number("int"),), (Number("float"),), (Number("complex"),))
"""The Python numbers that an op may have been called with: they are not recorded, and what came out shows which kind.
``None``, unknown, is right where they change nothing, as with floating operands."""


def _fits(assumed: Mapping[str, bool], agreeing: Sequence[Mapping[str, bool]]) -> bool:
    """Whether an answer assumes nothing that contradicts what was seen."""
    return any(all(assumed.get(k, v) == v for k, v in one.items()) for one in agreeing)


def _call(op: Op, dtypes: Sequence[str]) -> Call:
    operands = tuple(Given(d, len(i.shape), 0 in i.shape) for d, i in zip(dtypes, op.inputs))
    outs = len(op.written) if op.effect == "write" and 0 not in op.written else 0
    return Call(operands, outs=outs)


def _agrees(outcome: Prediction, outputs: Sequence[str]) -> bool:
    return isinstance(outcome, Gives) and (not outcome.dtypes or spread(outcome.dtypes, outputs) == tuple(outputs))


# ---------------------------------------------------------------- results


def spread(made: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """One dtype for all results, or as many as there are."""
    return tuple(made[min(n, len(made) - 1)] for n in range(len(outputs))) if made else tuple(outputs)


def widens(given: Sequence[str], outcome: Prediction) -> bool:
    """Whether an op's first result is wider than one of its floating operands although the operands disagree."""
    if not isinstance(outcome, Gives) or not outcome.dtypes:
        return False
    floating = {d for d in given if d in REAL}
    return len(floating) > 1 and any(wider(outcome.dtypes[0], d) for d in floating)


def guess(before: Sequence[str], given: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Results after a repaired refusal, or of an op without a rule: they follow the first operand that had their dtype
    before."""
    like = dict(zip(reversed(before), reversed(given)))
    return tuple(like.get(d, d) for d in outputs)


# ---------------------------------------------------------------- refused calls


def refused_with(refused: Refused, now: Mapping[int, str], numbers: Mapping[int, float] = NONE) -> Prediction:
    """What becomes of a call that was refused, if its tensors have other dtypes, or its Python numbers other values, by
    index; the others stay."""
    before = _refused_call(refused, {}, {})
    after = _refused_call(refused, now, numbers)
    table = operator_rules.table()
    if after == before:
        return Refuses(refused.code)
    if (forbidden := REFUSED_IN_PYTHON.get(refused.op)) is not None:
        return Refuses(refused.code) if forbidden & {g.dtype for g in after.operands} else Gives(())
    named = [name for name in (refused.op, refused.aten or "") if name in table and name not in ENGINE]
    if refused.phase == "backward":  # the rule of a call that takes such operands says nothing of its backward
        named = [n for n in named if any(isinstance(o, Refuses) for o in table.possible(n, before).values())]
    for name in named:
        seen = table.possible(name, before)
        kept = [dict(a) for a, outcome in seen.items() if isinstance(outcome, Refuses)]
        answers = {o for a, o in table.possible(name, after).items() if _fits(dict(a), kept)} if kept else set()
        if answers:
            return answers.pop() if len(answers) == 1 else NO_RULE
        outcomes = set(table.possible(name, after).values()) if not kept else set()
        if outcomes and all(isinstance(o, Refuses) for o in outcomes):  # before, one was of a dtype without a rule
            return outcomes.pop()
    return NO_RULE if named or refused.wants != "agree" else _agreed(refused, after)


NO_RULE = Unknown("no rule says what this call does")
ENGINE = frozenset({"backward", "grad"})
"""What these refuse is refused by the autograd engine, or by what it calls: hooks, and reducers of gradients."""


def _refused_call(refused: Refused, now: Mapping[int, str], numbers: Mapping[int, float]) -> Call:
    operands = (Given(now.get(w.index, w.dtype), len(w.shape), 0 in w.shape) for w in tensors(refused))
    scalars = (_number(w, numbers) for w in refused.witnesses if w.dtype.startswith(PYTHON))
    known = tuple(n for n in scalars if n is not None)
    return Call(tuple(operands), known or None)


def _number(scalar: Witness, numbers: Mapping[int, float]) -> Number | None:
    """A Python number of a refused call; None where its value was not recorded."""
    try:
        return Number(scalar.dtype.removeprefix(PYTHON), abs(numbers.get(scalar.index, float(scalar.name))))
    except ValueError:
        return None


def tensors(refused: Refused) -> list[Witness]:
    """The tensors of a refused call, in the order of its arguments."""
    return sorted((w for w in refused.witnesses if not w.dtype.startswith(PYTHON)), key=lambda w: w.index)


def _agreed(refused: Refused, after: Call) -> Prediction:
    """What the engine does, or a communication of several ranks, for which there is no operator: what they refuse with
    says that the operands must agree."""
    return Refuses(refused.code) if len(set(after.floating)) > 1 else Gives(())
