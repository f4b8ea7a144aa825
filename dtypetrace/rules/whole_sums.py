"""Integers that are computed in floating point and made integers again (DT308): an integer product in float32, say,
where there is no kernel for integers.

Beyond 2**24, float32 rounds sums to even numbers, then to multiples of four. That is nothing beside such a sum, but
these are integers: what is left when others as large are subtracted, such as the term of a zero point, is as far away
by whole ones, and so are rests, bits and keys.
"""

from __future__ import annotations

from .. import graph
from ..records import FORWARD, Finding, Op, Value
from ..tables.dtypes import COMPLEX, DTYPES, HALF, REAL
from ..tables.english import quoted
from ..tables.operators import is_cast, tagged
from .advice import advise
from .blame import Damaged, decided, event_born
from .run_facts import FAR, Run
from .silent_findings import found_at

_OTHERS = 0.1
"""Share of the integers that are others, or too large for the dtype."""
_LEFT = 2.0**-6
"""The error of what is left after a subtraction, beside its largest number, from which on it matters."""
_ADDS_UP = "matmul", "addmm", "convolution", "total", "running"
_KEEPS_WHOLE = (*_ADDS_UP, "sum", "product")


def find(run: Run, v: Value) -> Finding | None:
    """Of a cast to integers of numbers beyond those of which the dtype holds each; None where that does no harm."""
    cast, number = run.ops[v.op], sum_of_integers(run, v.op)
    if number < 0 or cast.inputs[0].dtype in HALF:  # what 16 bits round is compared call by call
        return None
    measured = {p.op: p for p in (*run.recording.spot_checks, *run.recording.precisions)}
    others = measured[v.op].others if v.op in measured else v.spoilt / v.exact
    op, dtype = run.ops[number], cast.inputs[0].dtype
    step = run.peaks.get(number, 0.0) / 2 ** DTYPES[dtype].digits
    error = measured[number].total * measured[number].size if number in measured else step
    if others < _OTHERS or op.phase not in FORWARD or not _told_apart(run, v.op, error):
        return None
    decision = decided(Damaged(run, number, dtype, event_born(run, number, dtype), rounded=True))
    whole = f"compute {quoted(op.op)} in int64"
    wide = (f"compute {quoted(op.op)} in float64, which holds every integer up to 2**53", whole)
    changes = wide if dtype == "float32" else (whole,)
    fix = advise(decision.culprit.origin.place, changes[0], others=changes[1:])
    said = f"{v.spoilt:,} of {v.exact:,} sampled sums of integers are above {2 ** DTYPES[dtype].digits:,}"
    return found_at(
        run, op, "DT308", decision.culprit, fix, begins=decision.begins, source=dtype, said=said,
        title=f"{quoted(op.op)} rounds integers in {dtype} that are taken for exact afterwards",
        notes=(f"up to {step * 2 ** DTYPES[dtype].digits:.3g}, {dtype} holds only multiples of {_multiple(step):,}",),
    )  # fmt: skip


def sum_of_integers(run: Run, cast: int) -> int:
    """The op whose result a cast makes integers again, if integers alone were added up or multiplied there; else
    -1."""
    number = graph.unmoved(run.ops, run.ops[cast].inputs[0].producer)
    return number if number >= 0 and tagged(run.ops[number], *_KEEPS_WHOLE) and _of_integers(run, number) else -1


def _multiple(step: float) -> int:
    """The power of two that is nearest above a step."""
    return 1 << max(1, int(step)).bit_length()


def _of_integers(run: Run, number: int) -> bool:
    """Whether an op computes with integers alone, each cast to its dtype or computed so itself."""
    waiting, seen = [number], set[int]()
    while waiting and len(seen) < FAR:
        at = waiting.pop()
        op = run.ops[at]
        if at in seen or is_cast(op) and _from_integers(op):
            continue
        seen.add(at)
        alone = tagged(op, "sum", "product") and len(op.inputs) < 2  # beside a number of Python's
        if alone or not (run.moves(at) or tagged(op, "join", *_KEEPS_WHOLE)):
            return False
        above = [i.producer for i in op.inputs if i.dtype in REAL]
        if not above or min(above) < 0:
            return False
        waiting += above
    return not waiting


def _from_integers(op: Op) -> bool:
    return bool(op.inputs) and op.inputs[0].dtype not in REAL and op.inputs[0].dtype not in COMPLEX


def _told_apart(run: Run, number: int, error: float) -> bool:
    """Whether integers are used by their last digits: as keys, bits, rests or places, or to subtract others from them
    that leave little beside the error of the integers."""
    whole = lambda n: run.ops[n].outputs[:1] != () and run.ops[n].outputs[0] not in REAL
    stays = lambda n: whole(n) and (run.moves(n) or is_cast(run.ops[n]))
    below = [(n, at) for n, at in run.below([number], stays, FAR) if not stays(n)]
    if any(tagged(run.ops[n], "keys", "bits", "remainder") for n, _ in below):
        return True
    if any(tagged(run.ops[n], "picks", "places") and 0 not in at for n, at in below):
        return True
    subtracts = [n for n, _ in below if whole(n) and tagged(run.ops[n], "difference")]
    goes_on = lambda n: stays(n) or whole(n) and tagged(run.ops[n], "difference")
    ends = (n for n, _ in run.below(subtracts, goes_on, FAR) if is_cast(run.ops[n]) and not whole(n))
    return any(0.0 < run.peaks.get(n, 0.0) * _LEFT <= error for n in ends)
