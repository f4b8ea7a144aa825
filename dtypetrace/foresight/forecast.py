"""What a run would be like in other dtypes: what would be refused, what widened, and memory and work by dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import graph
from ..records import FORWARD, Place, Recording
from ..tables import operator_rules
from ..tables.dtypes import FLOATING, bytes_of, parse
from ..tables.operators import flops, is_cast, is_move, result_bytes
from ..tables.rule_language import Gives
from .carry import Replay, operands_of, refusals, refused_again
from .changes import AUTOCAST, DtypeChange, resolve


@dataclass(frozen=True, slots=True)
class Predicted:
    """One op or refused call that would do something different."""

    op: str
    module: str
    phase: str
    place: Place
    code: str
    """Of the refusal; empty for an op that is widened."""
    before: tuple[str, ...]
    """The dtypes of its operands as they were recorded."""
    after: tuple[str, ...]
    gives: str
    """The dtype of its result, empty where it is refused."""
    count: int


@dataclass(frozen=True, slots=True)
class Amounts:
    """Bytes and floating point operations by dtype."""

    parameters: Mapping[str, int]
    """Bytes of parameters and buffers."""
    results: Mapping[str, int]
    """Bytes of the results of forward ops, summed over all calls."""
    flops: Mapping[str, int]
    """Floating point operations of matmuls, convolutions and attentions, by the dtype that they compute in."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would have happened, op by op and in total."""

    change: DtypeChange
    names: Mapping[str, str]
    """The dtypes that were asked for, by the names of what should have them."""
    refused: tuple[Predicted, ...]
    """Calls that ran and would be refused."""
    still: tuple[Predicted, ...]
    """Calls that were refused and still would be."""
    mended: tuple[Predicted, ...]
    """Calls that were refused and would run."""
    widened: tuple[Predicted, ...]
    """Ops that would widen their operands but did not before."""
    changed: int
    """How many calls would compute in another dtype."""
    unknown: Mapping[str, int]
    """Operators for which the table has no answer, with the number of their calls."""
    before: Amounts
    after: Amounts
    table: str
    """The torch version and the device whose kernels the table was measured from."""

    @property
    def clean(self) -> bool:
        """Whether nothing would be refused, as far as the table says."""
        return not (self.refused or self.still)


def what_if(recording: Recording, changes: Mapping[str, Any] | DtypeChange, autocast: Any = None) -> Forecast:
    """What the run would have done with other dtypes.

    changes: names to dtypes, see :func:`resolve`. autocast: the dtype that autocast computes in during forward,
    ``"off"`` for no autocast, None for autocast as recorded. Raises UnknownNameError for names that match nothing,
    UnknownDtypeError for what is no dtype.
    """
    change = changes if isinstance(changes, DtypeChange) else resolve(recording, changes, autocast)
    run = Replay(recording, change)
    table = operator_rules.table()
    after = list(refusals(run))
    mended = (n for n, r in enumerate(recording.refused) if isinstance(refused_again(run, r), Gives))
    return Forecast(
        change,
        {} if isinstance(changes, DtypeChange) else {n: parse(d) for n, d in changes.items() if n != AUTOCAST},
        refused=tuple(_of_op(run, a.op, a.code) for a in after if a.op >= 0),
        still=tuple(_of_refused(run, a.refused, a.code) for a in after if a.refused >= 0),
        mended=tuple(_of_refused(run, n, "") for n in mended),
        widened=tuple(_of_op(run, n, "") for n, c in enumerate(run.ops) if c.widens),
        changed=sum(o.count for o, c in zip(recording.ops, run.ops) if c.outputs != o.outputs),
        unknown=_unknown(run),
        before=amounts(Replay(recording, DtypeChange())),
        after=amounts(run),
        table=f"torch {table.torch}, {table.device}",
    )


def _of_op(run: Replay, number: int, code: str) -> Predicted:
    op, carried = run.recording.ops[number], run.ops[number]
    place = graph.place_of(run.recording, op.place)
    before = tuple(i.dtype for i in op.inputs)
    gives = carried.outputs[0] if carried.outputs and not code else ""
    return Predicted(op.op, op.module, op.phase, place, code, before, carried.inputs, gives, op.count)


def _of_refused(run: Replay, number: int, code: str) -> Predicted:
    refused = run.recording.refused[number]
    outcome = refused_again(run, refused)
    gives = outcome.dtypes[0] if isinstance(outcome, Gives) and outcome.dtypes else ""
    before, after = zip(*operands_of(run, refused)) if refused.witnesses else ((), ())
    place = graph.place_of(run.recording, refused.place)
    return Predicted(refused.op, refused.module, refused.phase, place, code, before, after, gives, refused.count)


def _unknown(run: Replay) -> dict[str, int]:
    found: Counter[str] = Counter()
    for op, carried in zip(run.recording.ops, run.ops):
        if carried.unknown:
            found[op.aten] += op.count
    return dict(found.most_common())


def amounts(run: Replay) -> Amounts:
    """Memory and work by dtype."""
    parameters: Counter[str] = Counter()
    for p in run.recording.parameters:
        now = run.parameters.now(p)
        parameters[now] += p.size * bytes_of(now)
    results: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for op, carried in zip(run.recording.ops, run.ops):
        if not carried.outputs or carried.outputs[0] not in FLOATING:
            continue
        made = carried.outputs[0]
        if op.phase in FORWARD and not is_move(op):
            recorded = bytes_of(op.outputs[0])
            results[made] += result_bytes(op) * op.count * bytes_of(made) // recorded
        if not is_cast(op) and (amount := flops(op)):
            work[made] += amount * op.count
    return Amounts(*(_sorted(counted.items()) for counted in (parameters, results, work)))


def _sorted(items: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {dtype: amount for dtype, amount in sorted(items, key=lambda item: -item[1]) if amount}
