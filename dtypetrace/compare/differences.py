"""What differs in dtype between two recordings, aligned by module and op, not by line."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .. import graph
from ..records import Finding, Input, Origin, Place, Recording
from ..rules import patterns
from ..rules.compiled_flow import Flow, Line
from ..tables.dtypes import FLOATING
from ..tables.operators import name_of
from . import alignment, contract
from .alignment import Block, Pair
from .contract import Breach


@dataclass(frozen=True, slots=True)
class Side:
    """One run's part of a difference: the dtype there, and the event that decided it (no place where none is known)."""

    dtype: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Use:
    """Where a difference is first seen: an op with its places in both runs. ``op`` is empty for a parameter that no op
    of the recordings read."""

    op: str
    module: str
    phase: str
    places: tuple[Place, Place]


@dataclass(frozen=True, slots=True)
class DtypeDifference:
    """One dtype that differs for one cause: the sides, the first op that shows it, all modules and
    parameters that do."""

    sides: tuple[Side, Side]
    first: Use
    ops: int
    """Distinct ops whose operands differ for this cause."""
    modules: tuple[str, ...]
    """Their modules, as patterns."""
    parameters: tuple[str, ...]
    """Parameters of that dtype, as patterns."""


@dataclass(frozen=True, slots=True)
class UnmatchedOp:
    """One op of a sequence that only one run has: its name, the dtypes of its operands and results, its place."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Replaced:
    """Other ops ran at the same point of a module: those of each run."""

    modules: tuple[str, ...]
    """As patterns."""
    phase: str
    calls: tuple[tuple[UnmatchedOp, ...], tuple[UnmatchedOp, ...]]
    inside: str = ""
    """The function that both runs called there, if these are the operators that it ran."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Ops that read nothing of the run and that nothing in it reads: how many distinct ones, and where they begin."""

    ops: int
    place: Place


@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiled code makes otherwise of a call that both programs have: by aspect, both dtypes."""

    op: str
    module: str
    phase: str
    places: tuple[Place, Place]
    changed: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that differs between two recordings. ``differences`` is in the order of the run."""

    settings: tuple[tuple[str, str, str], ...] = ()
    """What was set otherwise: its name and both values."""
    differences: tuple[DtypeDifference | Replaced, ...] = ()
    findings: tuple[tuple[Finding, ...], tuple[Finding, ...]] = ((), ())
    """Findings that only one of the runs has."""
    facts: tuple[Breach, ...] = ()
    """What differs in the receipt, and in what modules hold and compute where no difference above tells it."""
    apart: tuple[tuple[Apart, ...], tuple[Apart, ...]] = ((), ())
    """What ran in one of the runs only and has nothing to do with the rest of it."""
    compiled: tuple[Compiled, ...] = ()
    """What compiled code makes otherwise."""

    @property
    def same(self) -> bool:
        """Whether nothing differs in dtype, and neither run has findings of its own."""
        return not (self.differences or any(self.findings) or self.facts or self.compiled)


_PHASES = ("forward", "recompute", "optimizer", "other", "")
"""Phases in which other ops are reported; in backward they follow from the forward ones."""


def compare(
    one: Recording, other: Recording, findings: tuple[Iterable[Finding], Iterable[Finding]] = ((), ())
) -> Comparison:
    """Compares two recordings of the same model. Names are compared without the variable that holds the model."""
    pair = (one, other)
    roots = (patterns.root(one), patterns.root(other))
    found_ops = alignment.aligned(pair, roots)
    changes = _Changes(pair, roots)
    changes.take_parameters()
    for a, b in found_ops.ops:
        changes.take_op(a, b)
    inside = [call for call in found_ops.calls if changes.take_call(call)]
    found_changes = list(changes.found())
    births = {side.origin.place for _, change in found_changes for side in change.sides}
    blocks = [
        (at, block)
        for at, block in _collapsed(found_ops.ops, pair, [*found_ops.blocks, *inside])
        if not all(call.place in births for side in block.calls for call in side)  # a change has it as its birth
    ]
    ordered: list[tuple[float, DtypeDifference | Replaced]] = [*found_changes, *blocks]
    found = tuple(tuple(side) for side in findings)
    return Comparison(
        tuple(_settings(pair)),
        tuple(difference for _, difference in sorted(ordered, key=lambda d: d[0])),
        (_without(found[0], found[1], roots), _without(found[1], found[0], roots[::-1])),
        tuple(_facts(pair, births)),
        _apart(pair, found_ops.apart),
        tuple(_compiled(pair)),
    )


# ---------------------------------------------------------------- dtypes that differ

_Cause = tuple[str, str, Place, Place, str, str]


class _Changes:
    """The differing dtypes so far, grouped by the events that decided them in both runs."""

    def __init__(self, pair: Pair, roots: tuple[str, str]) -> None:
        self._pair, self._roots = pair, roots
        self._sides: dict[_Cause, tuple[Side, Side]] = {}
        self._ops: dict[_Cause, list[tuple[int, int]]] = {}
        self._parameters: dict[_Cause, list[str]] = {}

    def take_parameters(self) -> None:
        """Parameters with the same name and another dtype."""
        own = [{patterns.below(p.name, root): p for p in r.parameters} for r, root in zip(self._pair, self._roots)]
        for name, a in own[0].items():
            b = own[1].get(name)
            if b is not None and a.dtype != b.dtype:
                cause = self._cause((a.dtype, b.dtype), (a.event, b.event))
                self._parameters.setdefault(cause, []).append(name)

    def take_op(self, a: int, b: int) -> None:
        """The operands of two corresponding ops; where those agree and the results do not, the ops decided."""
        one, other = self._pair[0].ops[a], self._pair[1].ops[b]
        if not self._operands(a, b, zip(one.inputs, other.inputs)) and one.outputs != other.outputs:
            self._results(a, b, (one.outputs, other.outputs))

    def take_call(self, call: Block) -> bool:
        """The operands that came into two corresponding calls, and what they gave. Returns whether the calls
        computed in other dtypes by themselves."""
        a, b = call.sides
        one, other = alignment.operands(self._pair[0], a), alignment.operands(self._pair[1], b)
        if self._operands(a[0], b[0], zip(one, other) if len(one) == len(other) else ()):
            return False
        gave = self._pair[0].ops[a[-1]].outputs[:1], self._pair[1].ops[b[-1]].outputs[:1]
        if gave[0] != gave[1]:
            self._results(a[-1], b[-1], gave)
        return alignment.computed(self._pair[0], a) != alignment.computed(self._pair[1], b)

    def _operands(self, a: int, b: int, operands: Iterable[tuple[Input, Input]]) -> bool:
        causes = [
            self._cause((x.dtype, y.dtype), (x.event, y.event))
            for x, y in operands
            if x.dtype != y.dtype and {x.dtype, y.dtype} & FLOATING
        ]
        for cause in dict.fromkeys(causes):
            self._ops.setdefault(cause, []).append((a, b))
        return bool(causes)

    def _results(self, a: int, b: int, gave: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        """Results that differ where no operand does."""
        if {*gave[0], *gave[1]} & FLOATING:
            ops = self._pair[0].ops[a], self._pair[1].ops[b]
            sides = [
                Side(", ".join(dtypes), graph.ran(recording, op))
                for recording, op, dtypes in zip(self._pair, ops, gave)
            ]
            self._ops.setdefault(self._known(sides[0], sides[1]), []).append((a, b))

    def _cause(self, dtypes: tuple[str, str], events: tuple[int, int]) -> _Cause:
        # of two operands that were promoted, the one is followed that does not have the other run's dtype
        sides = [
            Side(dtype, graph.origin(recording, event, dtypes[1 - n]))
            for n, (recording, dtype, event) in enumerate(zip(self._pair, dtypes, events))
        ]
        return self._known(sides[0], sides[1])

    def _known(self, a: Side, b: Side) -> _Cause:
        cause = (a.dtype, b.dtype, a.origin.place, b.origin.place, a.origin.kind, b.origin.kind)
        self._sides.setdefault(cause, (a, b))
        return cause

    def found(self) -> Iterator[tuple[float, DtypeDifference]]:
        """Each cause with the number of the first op of the first run that shows it."""
        for cause, sides in self._sides.items():
            ops, names = self._ops.get(cause, []), self._parameters.get(cause, [])
            modules = [patterns.below(self._pair[0].ops[a].module, self._roots[0]) for a, _ in ops]
            yield (
                ops[0][0] if ops else len(self._pair[0].ops),
                DtypeDifference(
                    sides,
                    self._use(*ops[0]) if ops else Use("", "", "", (sides[0].origin.place, sides[1].origin.place)),
                    len(ops),
                    tuple(patterns.collapsed(dict.fromkeys(m for m in modules if m))),
                    tuple(patterns.collapsed(names)),
                ),
            )

    def _use(self, a: int, b: int) -> Use:
        one, other = self._pair[0].ops[a], self._pair[1].ops[b]
        places = (graph.place_of(self._pair[0], one.place), graph.place_of(self._pair[1], other.place))
        return Use(one.op, patterns.below(one.module, self._roots[0]), one.phase, places)


# ---------------------------------------------------------------- other ops


def _collapsed(pairs: list[tuple[int, int]], pair: Pair, blocks: Iterable[Block]) -> Iterator[tuple[float, Replaced]]:
    """Blocks of other ops, one for all modules of a pattern that have the same ones, each with its place in the run."""
    aligned = sorted((b, a) for a, b in pairs)
    groups: dict[object, list[tuple[str, float, Replaced]]] = {}
    for block in blocks:
        (phase, module), (a, b) = block.key, block.sides
        calls = (_calls(pair[0], a, block.inside), _calls(pair[1], b, block.inside))
        if phase not in _PHASES or not any(calls):
            continue
        # what only the second run has stands after the last op before it that both have
        before = bisect.bisect(aligned, (b[0], -1)) - 1 if b else -1
        first = a[0] if a else aligned[before][1] + 0.5 if before >= 0 else -1.0
        ran = tuple(tuple((c.op, c.inputs, c.outputs) for c in side) for side in calls)
        groups.setdefault((phase, patterns.starred(module), block.inside, ran), []).append(
            (module, first, Replaced((), phase, calls, block.inside))
        )
    for members in groups.values():
        _, first, replaced = members[0]
        yield first, dataclasses.replace(replaced, modules=tuple(patterns.collapsed(m for m, *_ in members)))


def _calls(recording: Recording, numbers: list[int], inside: str) -> tuple[UnmatchedOp, ...]:
    """The ops, one for neighbours that differ in nothing; those without a floating number are left out. Inside a
    function they have the names of the operators that ran."""
    found: list[UnmatchedOp] = []
    for number in numbers:
        op = recording.ops[number]
        inputs = tuple(dict.fromkeys(i.dtype for i in op.inputs if i.dtype in FLOATING))
        outputs = tuple(dict.fromkeys(d for d in op.outputs if d in FLOATING))
        name = name_of(op) if inside else op.op
        call = UnmatchedOp(name, inputs, outputs, graph.place_of(recording, op.place))
        same = found and (found[-1].op, found[-1].inputs, found[-1].outputs) == (call.op, call.inputs, call.outputs)
        if (inputs or outputs) and not same:
            found.append(call)
    return tuple(found)


# ---------------------------------------------------------------- the rest


def _settings(pair: Pair) -> Iterator[tuple[str, str, str]]:
    for name in ("torch", "python"):
        a, b = (str(r.meta.get(name, "")) for r in pair)
        if a != b:
            yield name, a, b


def _facts(pair: Pair, births: set[Place]) -> Iterator[Breach]:
    """The facts that a contract of the first run would find broken in the second one: all of the run; of modules what
    they hold, where that has another birth than the differences. What they compute is compared op by op."""
    one, other = map(contract.facts, pair)
    for breach in contract.check({module: own.values for module, own in one.items()}, other):
        known = breach.cause is not None and breach.cause.place in births
        if breach.modules == (contract.RUN,) or breach.key not in ("inputs", "computes", "outputs") and not known:
            yield breach


_ASPECTS = {"computes": "computes in", "kernel": "is handed on in", "saved": "is saved in", "memory": "is written in"}
"""The fields of ``compiled_flow.Line`` that are compared, as they are told; what a line says is no doing of the
compiler's."""


def _compiled(pair: Pair) -> Iterator[Compiled]:
    """Calls that the compiled code of both runs has, aligned by function, module and name: its policy, such as which
    casts it leaves out, may differ between versions."""
    one, other = (_compiled_lines(r) for r in pair)
    for key, a in one.items():
        b = other.get(key)
        if b is None or a.says != b.says:
            continue
        changed = [(told, getattr(a, name), getattr(b, name)) for name, told in _ASPECTS.items()]
        if changed := [(told, x or "none", y or "none") for told, x, y in changed if x != y]:
            places = graph.place_of(pair[0], a.place), graph.place_of(pair[1], b.place)
            yield Compiled(a.op, a.module, a.phase, places, tuple(changed))


def _compiled_lines(recording: Recording) -> dict[tuple[str, str, str, str, int], Line]:
    found: dict[tuple[str, str, str, str, int], Line] = {}
    for region in recording.regions:
        for line in Flow(region).lines():
            number = 0
            while (key := (region.name, line.module, line.op, line.phase, number)) in found:
                number += 1
            found[key] = line
    return found


def _without(own: tuple[Finding, ...], others: tuple[Finding, ...], roots: tuple[str, str]) -> tuple[Finding, ...]:
    """The findings that the other run does not have: of another code, or in modules of another pattern."""

    def key(f: Finding, root: str) -> tuple[str, str, str, str]:
        return f.code, f.kind, f.op, patterns.starred(patterns.below(f.module, root))

    known = {key(f, roots[1]) for f in others}
    return tuple(f for f in own if key(f, roots[0]) not in known)


def _apart(pair: Pair, blocks: Iterable[Block]) -> tuple[tuple[Apart, ...], tuple[Apart, ...]]:
    found: tuple[list[Apart], list[Apart]] = ([], [])
    for block in blocks:
        for recording, numbers, own in zip(pair, block.sides, found):
            if numbers:
                own.append(Apart(len(numbers), graph.place_of(recording, recording.ops[numbers[0]].place)))
    return tuple(found[0]), tuple(found[1])
