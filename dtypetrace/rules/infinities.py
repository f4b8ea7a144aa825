"""What becomes of an infinity that an op made of finite numbers: whether it does harm.

An infinity that the program asked for, or that a later op removes (1 / inf), does none. One that reaches what the run
ends with does, and so do a root of it, a product of matrices that takes it, and arithmetic with a sum that exists. What
replaces it by another number hides it and does not mend it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from .. import graph
from ..records import FORWARD, Op, Recording, Value
from ..tables.dtypes import DTYPES, REAL
from ..tables.english import quoted
from ..tables.operators import destination, flops, is_cast, is_move, name_of, tagged, writes
from .run_facts import Run

MANY_CALLS = 3
"""Of fewer calls, that all are infinite may still be the first steps of a loss scale that goes down."""
STEPS_SKIPPED = 0.5
"""The share of calls that are infinite, from which on skipping such steps is no precaution: most of them are."""


def unmeant(run: Run) -> list[Value]:
    """The values of a run, without those whose infinities may be how a loss scaler finds its scale."""
    skips = scaled(run.recording)
    return [v for v in run.values.values() if not skips or run.ops[v.op].phase not in ("backward", "optimizer")]


def scaled(recording: Recording) -> bool:
    """Whether gradients are checked before each step, by a loss scaler or by the program, so that infinite ones are
    skipped."""
    checks = graph.scaler_check(recording) is not None
    return checks or any(refused.code == "DT116" for refused in recording.refused) or looked_at(recording)


def looked_at(recording: Recording) -> bool:
    """Whether steps were taken, and none with an infinite or NaN gradient: then the program skips such steps."""
    return any(u.steps for u in recording.updates) and not any(u.broken_gradient for u in recording.updates)


def skipped(run: Run, number: int) -> bool:
    """Whether the program casts gradients, asks whether they are infinite, as they are in few calls, and no weight
    became so: it leaves such steps out."""
    v = run.values.get(number)
    made = {run.ops[i.producer].phase for i in run.ops[number].inputs if i.producer >= 0}
    if not is_cast(run.ops[number]) or made != {"backward"} or v is None or v.made > STEPS_SKIPPED * v.measured:
        return False
    asked = any(tagged(run.ops[n].op, "check") for n, _ in run.below([number], run.moves))
    written = (n for n, op in enumerate(run.ops) if writes(op) and run.weight_of(op.inputs[destination(op)]))
    return asked and not any(n in run.values and run.values[n].bad for n in written)


def harm(run: Run, first: Value) -> str | None:
    """What an infinity does, in words; empty where the run ends with it, None where it does no harm."""
    after = [run.ops[v.op] for v in unmeant(run) if v.nans]
    if after:
        module = f", {after[0].module}" if after[0].module else ""
        return f"the first NaN comes out of {quoted(after[0].op)}{module}"
    made = run.ops[first.op].outputs[0]
    for look, does in _HARMS:
        if (op := look(run, first.op)) is not None:
            return does.format(op=quoted(op.op), made=made)
    return "" if _stays(run, first) else None


def _stays(run: Run, first: Value) -> bool:
    """Whether an infinity is among what the run ended with.

    Either no later op used the infinity's op, or it reached what is printed, or what backward() starts from.
    """
    values = run.values
    consumed = {i.producer for op in run.ops for i in op.inputs}
    if any(v.bad and v.op not in consumed and v.first >= first.first for v in values.values() if v.made):
        return True
    if run.ops[first.op].phase not in FORWARD:
        return False
    infinite: set[int] = {first.op}
    read: set[int] = set()
    used: set[int] = set()
    stepped = any(u.steps for u in run.recording.updates)
    usual = run.ops[first.op].count * (STEPS_SKIPPED if stepped else 1)
    always = first.made >= max(MANY_CALLS, usual)
    for number, op in enumerate(run.ops):
        above = {i.producer for i in op.inputs} & infinite
        if always and tagged(op.op, "check"):
            continue  # the check for a rare case, which is the rule
        if tagged(op, "observed"):
            read |= above
        elif op.phase in FORWARD:
            used |= above
        bad = number in values and (values[number].bad or always and _carries(op, values[number]))
        if above and op.phase in FORWARD and (bad or is_move(op)):
            infinite.add(number)
    return bool(read - used)


def _carries(op: Op, v: Value) -> bool:
    """Whether an op that was measured in few of its calls makes an infinity of an infinite operand."""
    return v.measured < op.count and (tagged(op, "total", "sum", "scale") or name_of(op) == "neg")


def _takers(run: Run, number: int) -> Iterator[tuple[int, Op]]:
    """The later ops of forward that take an infinity that an op made, in the order in which they ran."""
    values = run.values

    def on(n: int) -> bool:
        taken = n > number and run.ops[n].phase in FORWARD
        return taken and (run.moves(n) or tagged(run.ops[n], "observed") or n in values and bool(values[n].bad))

    for n, _ in run.below([number], on):
        if n > number and run.ops[n].phase in FORWARD:
            yield n, run.ops[n]


def _rooted(run: Run, number: int) -> Op | None:
    """The first op that takes the root of an infinity made by a float16 product, if the infinity is passed on until
    then."""
    return next((op for _, op in _takers(run, number) if tagged(op, "root")), None)


def _multiplied(run: Run, number: int) -> Op | None:
    """The first product of matrices that takes an infinity which a cast made of a finite value: it spreads to whole
    rows. What masks with infinities goes through a softmax before it is multiplied."""
    if not is_cast(run.ops[number]):
        return None
    takers = ((n, op) for n, op in _takers(run, number) if flops(op))
    return next((op for n, op in takers if n in run.values and run.values[n].bad), None)


def _summed(run: Run, number: int) -> Op | None:
    """The first op of arithmetic that takes an infinity to which a float16 sum of finite numbers grew.

    Nobody means such an infinity, as a mask does: the sum exists, and whatever is made of it is another number. Where
    the program looks for infinities or limits them, it is ready for them.
    """
    op = run.ops[number]
    if not tagged(op, "total") or op.phase not in FORWARD or not op.inputs:
        return None
    found = None
    for _, taker in _takers(run, number):
        if tagged(taker, "upper_bound") or name_of(taker) == "where" or taker.outputs[:1] == ("bool",):
            return None
        passes = is_move(taker) or is_cast(taker) or tagged(taker, "observed")
        found = found or (None if passes else taker)
    return found


def _replaced(run: Run, number: int) -> Op | None:
    """The first op that puts another number in place of an infinity, and whose result is used.

    Where the infinity was meant, as in a sum of two masks, its operands are near the dtype's limit already. And where a
    value is limited to much less than that, an infinity is as good as the number that did not fit.
    """
    made = run.ops[number].outputs[0]
    limit = DTYPES[made].largest / 2 if made in REAL else inf
    if any(run.peaks.get(i.producer, 0.0) >= limit for i in run.ops[number].inputs):
        return None
    for n, op in _takers(run, number):
        if tagged(op, "upper_bound", "lower_bound"):
            by_limit = name_of(op) != "nan_to_num" and run.peaks.get(n, 0.0) < limit
            return None if by_limit or not run.users[n] else op
    return None


_HARMS = (
    (_rooted, "only the number under the root is too large: {made} can hold what {op} computes"),
    (_multiplied, "{op} adds it to other products, which are lost beside it"),
    (_summed, "{op} computes with it; the sum itself is finite"),
    (_replaced, "{op} replaces it: numbers that should differ become equal there"),
)
