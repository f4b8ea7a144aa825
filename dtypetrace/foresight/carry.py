"""Propagates changed dtypes through the ops of a recording, op by op, from the ops that made their operands.

Three things are not recorded and are assumed. A gradient has the dtype of the tensor that it is the gradient of,
because the engine casts it so. A cast of autocast's is not an op of its own: what autocast does to an op's operands is
worked out again. A cast that torch makes inside a function ends in the dtype of the function's first operand, if it did
before, and so does a number that the function turns into a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from .. import graph
from ..records import Event, Input, Op, Read, Recording, Refused, Unchanged, Witness
from ..tables import autocast, operator_rules
from ..tables.dtypes import DTYPES, FLOATING, REAL, wider
from ..tables.operators import ABOVE_DISPATCHER, NAMED_CASTS, REFUSED_IN_PYTHON, is_cast, name_of
from ..tables.rule_language import Call, Given, Gives, Number, Prediction, Refuses, Unknown
from .changes import DtypeChange, Parameters

NONE: Mapping[int, Any] = MappingProxyType({})
PYTHON = "python "
"""How the dtype of a Python number begins, among the operands of a refused call."""


@dataclass(frozen=True)
class Carried:
    """What one op would do: the dtypes of its operands and results, and what would happen that did not happen
    before."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    code: str = ""
    """Of the refusal, where the op would be refused. Its results are then assumed to be those after a cast."""
    unknown: str = ""
    """Why the table has no answer; the results' dtypes are then a guess."""
    widens: bool = False
    """Whether it promotes operands that it did not promote before."""


class Replay:
    """A recording under a change. ``ops`` holds what each op would do."""

    def __init__(self, recording: Recording, change: DtypeChange) -> None:
        self.recording = recording
        self.change = change
        self.parameters = Parameters(recording, change)
        self.ops: list[Carried] = []
        self._first: dict[tuple[str, int, str, str], str] = {}
        for number, op in enumerate(recording.ops):
            self.ops.append(self._carried(number, op))

    # ------------------------------------------------------------ operands

    def dtype_of(self, op: Op, operand: Input) -> str:
        """The dtype that an operand has after the change."""
        changed = self.parameters.dtype(op, operand)
        if operand.dtype not in DTYPES:
            return operand.dtype
        dtype = changed or operand.dtype
        if changed is None:
            if operand.holder != "parameter" and 0 <= operand.producer < len(self.ops):
                dtype = self.result_of(operand.producer, operand.dtype, operand.event, op.place)
            else:
                dtype = self.change.births.get(operand.event, operand.dtype)
        return self._cast_between(op, operand, dtype)

    def _cast_between(self, op: Op, operand: Input, dtype: str) -> str:
        """The dtype of an operand after a cast that changed nothing when it was recorded but would change it now.

        Where it took its dtype from another tensor's, the operand says so. Else it is not recorded which uses of a
        tensor came after such a cast: those in the same function are assumed to.
        """
        event = self._cast_to_itself(operand)
        if event is not None and (read := self._read(event)) is not None:
            return self._of_read(read)
        for cast in self._unchanged.get(_made(operand), ()):
            if cast.dtype == operand.dtype and cast.module == op.module and self._together(cast.place, op.place):
                read = self._read(Event("cast", cast.op, cast.place, cast.module, (), cast.dtype, reads=cast.reads))
                return self._of_read(read) if read is not None else cast.dtype
        return dtype

    def _cast_to_itself(self, operand: Input) -> Event | None:
        """The cast that changed nothing through which an operand came from the op that made it."""
        event = self.recording.events[operand.event] if operand.event >= 0 else None
        if event is None or event.how != "attribute" or not 0 <= operand.producer < len(self.ops):
            return None
        made_from = self.recording.ops[operand.producer].inputs
        return event if all(i.event != operand.event for i in made_from) else None

    @cached_property
    def _unchanged(self) -> dict[tuple[int, int], list[Unchanged]]:
        """The casts that changed nothing, by the op that made the tensor, or by the tensor's event if no op made it."""
        found: dict[tuple[int, int], list[Unchanged]] = {}
        for cast in self.recording.unchanged:
            found.setdefault((cast.producer, cast.event if cast.producer < 0 else -1), []).append(cast)
        return found

    def _together(self, one: int, other: int) -> bool:
        """Whether two places are in the same function."""
        frames = [graph.place_of(self.recording, n).stack[:1] for n in (one, other)]
        return all(frames) and len({(f[0].file, f[0].function) for f in frames}) == 1

    def result_of(self, producer: int, recorded: str, event: int, user: int = -1) -> str:
        """The dtype of an op's result where it is used, given the result's recorded dtype."""
        cast = self.change.results.get(producer)
        if cast is not None and user not in self.change.inside and (cast in FLOATING) == (recorded in FLOATING):
            return cast
        before, now = self.recording.ops[producer], self.ops[producer]
        if recorded in before.outputs:
            return now.outputs[before.outputs.index(recorded)]
        written = [n for n in before.written if n < len(before.inputs) and before.inputs[n].dtype == recorded]
        mine = next((n for n in written if before.inputs[n].event == event), next(iter(written), -1))
        # else the op made something else: a tensor's ``data`` was replaced
        return now.inputs[mine] if mine >= 0 else self.change.births.get(event, recorded)

    # ------------------------------------------------------------ one op

    def _carried(self, number: int, op: Op) -> Carried:
        given = tuple(self.dtype_of(op, i) for i in op.inputs)
        if op.phase == "backward" and op.of >= 0:
            given = self._gradients(op, given)
        given = self._numbers(op, given)
        self._first.setdefault(_function(op), next((d for d in given if d in FLOATING), ""))
        born = self._birth(number, op)
        if born is not None:
            return Carried(given, born)
        if is_cast(op) and op.outputs:
            return Carried(given, (self._cast(number, op, given),))
        if op.named in FLOATING:  # softmax(dtype=torch.float32) casts first
            given = tuple(op.named if i.dtype == op.named and d in FLOATING else d for i, d in zip(op.inputs, given))
        effective = self._after_autocast(op, given)
        before = tuple(i.dtype for i in op.inputs)
        if effective == before:
            return Carried(effective, op.outputs)
        return self._asked(op, before, effective)

    def _birth(self, number: int, op: Op) -> tuple[str, ...] | None:
        """The results of an op at which a changed dtype is born, None where no such dtype is."""
        event = self._born.get(number, -1)
        dtype = self.change.births.get(event)
        if dtype is None:
            return None
        decided = self.recording.events[event].to
        return tuple(dtype if d == decided else d for d in op.outputs)

    @cached_property
    def _born(self) -> dict[int, int]:
        """Op -> the changed event of its result, if none of its operands has that event."""
        found: dict[int, int] = {}
        for taken in _taken(self.recording):
            for i in taken:
                if i.event in self.change.births and i.producer >= 0:
                    made = self.recording.ops[i.producer]
                    if i.dtype in made.outputs and all(o.event != i.event for o in made.inputs):
                        found.setdefault(i.producer, i.event)
        return found

    def _gradients(self, op: Op, given: tuple[str, ...]) -> tuple[str, ...]:
        """The operands of a backward op: incoming gradients have the dtype of its forward op's results."""
        forward, now = self.recording.ops[op.of], self.ops[op.of]
        if not forward.outputs or not now.outputs:
            return given
        found = list(given)
        for n, i in enumerate(op.inputs):
            made = self.recording.ops[i.producer] if i.producer >= 0 else None
            if made is not None and made.phase == "backward" and made.of != op.of and i.dtype in forward.outputs:
                found[n] = now.outputs[forward.outputs.index(i.dtype)]
        return tuple(found)

    def _numbers(self, op: Op, given: tuple[str, ...]) -> tuple[str, ...]:
        """The operands, where a number that the same function turned into a tensor (``x[i] = 0``) follows the first."""
        made = [self.recording.ops[i.producer] if i.producer >= 0 else None for i in op.inputs]
        return tuple(
            given[0]
            if before is not None
            and not before.inputs
            and _function(before) == _function(op)
            and i.dtype == op.inputs[0].dtype
            else now
            for i, now, before in zip(op.inputs, given, made)
        )

    # ------------------------------------------------------------ casts

    def _cast(self, number: int, op: Op, given: tuple[str, ...]) -> str:
        recorded = op.outputs[0]
        if not given:
            return recorded
        if op.phase == "backward" and op.of >= 0:
            return self._of_forward(op, recorded)
        if op.inputs[0].dtype == recorded and not op.named:
            return given[0]  # a copy
        if op.named == recorded and op.op not in NAMED_CASTS:
            return recorded  # softmax(dtype=torch.float32)
        if op.op in NAMED_CASTS:
            return self._named(self._event_of(number), recorded)
        if op.autocast or given[0] == recorded:
            return given[0] if op.autocast and self._is_autocasts(op) else recorded
        first = self._first.get(_function(op), "")
        before = self._recorded_first(op)
        return first if before == recorded and first else recorded

    def _is_autocasts(self, op: Op) -> bool:
        region = op.autocast.partition(":")[2]
        return op.outputs[0] in (region, "float32")

    def _of_forward(self, op: Op, recorded: str) -> str:
        """The backward of a cast returns the dtype of the cast's operand."""
        forward, now = self.recording.ops[op.of], self.ops[op.of]
        return next((d for i, d in zip(forward.inputs, now.inputs) if i.dtype == recorded), recorded)

    def _named(self, event: Event | None, recorded: str) -> str:
        """The dtype that a cast in the program casts to: the one it names, or that of the tensor that it was read
        from."""
        read = self._read(event) if event is not None else None
        return self._of_read(read) if read is not None else recorded

    def _read(self, event: Event) -> Read | None:
        """The read of ``tensor.dtype`` that a cast has its dtype from; None where the cast names a dtype."""
        return next((r for r in event.reads if r.event >= 0 and r.dtype == event.to), None)

    def _of_read(self, read: Read) -> str:
        """The result of a read of ``tensor.dtype`` after the change."""
        if 0 <= read.producer < len(self.ops):
            return self.result_of(read.producer, read.dtype, read.event, read.place)
        return self._of_step(read.event, read.dtype)

    def _event_of(self, number: int) -> Event | None:
        found = self._steps_of_results.get(number, -1)
        return self.recording.events[found] if found >= 0 else None

    @cached_property
    def _steps_of_results(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for taken in _taken(self.recording):
            for i in taken:
                if i.producer >= 0 and i.dtype in self.recording.ops[i.producer].outputs:
                    found.setdefault(i.producer, i.event)
        return found

    def _of_step(self, event: int, recorded: str) -> str:
        """The dtype of the tensors that an event decided, after the change."""
        if event in self.change.births:
            return self.change.births[event]
        for number, before in enumerate(self.recording.ops[: len(self.ops)]):
            for i, now in zip(before.inputs, self.ops[number].inputs):
                if i.event == event and i.dtype == recorded:
                    return now
        for p in self.recording.parameters:
            if p.event == event:
                return self.parameters.now(p)
        return recorded

    def _recorded_first(self, op: Op) -> str:
        """The dtype that the first floating operand of a function's call had."""
        return self._recorded_firsts.get(_function(op), "")

    @cached_property
    def _recorded_firsts(self) -> dict[tuple[str, int, str, str], str]:
        found: dict[tuple[str, int, str, str], str] = {}
        for op in self.recording.ops:
            floating = next((i.dtype for i in op.inputs if i.dtype in FLOATING), "")
            found.setdefault(_function(op), floating)
        return found

    @cached_property
    def _ran(self) -> dict[tuple[str, tuple[str, ...]], tuple[str, ...]]:
        """The results of calls that ran in the recorded run, by operator and the dtypes of the operands."""
        return {(op.aten, tuple(i.dtype for i in op.inputs)): op.outputs for op in self.recording.ops}

    # ------------------------------------------------------------ what the table says

    def _after_autocast(self, op: Op, given: tuple[str, ...]) -> tuple[str, ...]:
        device, _, region = op.autocast.partition(":")
        if self.change.autocast is not None and op.phase in ("forward", "recompute"):
            region = "" if self.change.autocast == "off" else self.change.autocast
            device = device or op.device.partition(":")[0]
        if not region:
            return given
        return autocast.cast(autocast.policy(op.op, name_of(op), device), given, region)

    def _asked(self, op: Op, before: tuple[str, ...], given: tuple[str, ...]) -> Carried:
        outcome = predict(op, before, given)
        ran = self._ran.get((op.aten, given))
        if ran is not None and isinstance(outcome, Refuses):
            outcome = Gives(ran)  # the table depends on arguments that are not recorded; what ran is known to run
        widens = _widens(given, outcome) and not _widens(before, Gives(op.outputs))
        if isinstance(outcome, Gives):
            made = outcome.dtypes if len(outcome.dtypes) == len(op.outputs) else _spread(outcome.dtypes, op.outputs)
            return Carried(given, made, widens=widens)
        guess = _guess(before, given, op.outputs)
        if isinstance(outcome, Refuses):
            return Carried(given, guess, code=outcome.code)
        return Carried(given, guess, unknown=outcome.why)


def _taken(recording: Recording) -> Iterator[Sequence[Input | Witness]]:
    """What each call was given, those that were refused included."""
    yield from (op.inputs for op in recording.ops)
    yield from (refused.witnesses for refused in recording.refused)


def _function(op: Op) -> tuple[str, int, str, str]:
    """The key that distinguishes the calls of a function, as far as recorded."""
    return op.op, op.place, op.module, op.phase


def _spread(made: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """One dtype for all results, or as many as there are."""
    return tuple(made[min(n, len(made) - 1)] for n in range(len(outputs))) if made else tuple(outputs)


def _widens(given: Sequence[str], outcome: Prediction) -> bool:
    """Whether an op's first result is wider than one of its floating operands although the operands disagree."""
    if not isinstance(outcome, Gives) or not outcome.dtypes:
        return False
    floating = {d for d in given if d in REAL}
    return len(floating) > 1 and any(wider(outcome.dtypes[0], d) for d in floating)


def _guess(before: Sequence[str], given: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Results after a repaired refusal, or of an op without a rule: they follow the first operand that had their dtype
    before."""
    like = dict(zip(reversed(before), reversed(given)))
    return tuple(like.get(d, d) for d in outputs)


# ---------------------------------------------------------------- predicting


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


def _made(operand: Input) -> tuple[int, int]:
    return operand.producer, operand.event if operand.producer < 0 else -1


def _call(op: Op, dtypes: Sequence[str]) -> Call:
    operands = tuple(Given(d, len(i.shape), 0 in i.shape) for d, i in zip(dtypes, op.inputs))
    outs = len(op.written) if op.effect == "write" and 0 not in op.written else 0
    return Call(operands, outs=outs)


def _agrees(outcome: Prediction, outputs: Sequence[str]) -> bool:
    return isinstance(outcome, Gives) and (not outcome.dtypes or _spread(outcome.dtypes, outputs) == tuple(outputs))


def operands_of(run: Replay, refused: Refused) -> Iterator[tuple[str, str]]:
    """The dtypes of a refused call's operands, as recorded and after the change."""
    for w in sorted(refused.witnesses, key=lambda w: w.index):
        yield w.dtype, _dtype_after(run, refused, w) if w.dtype in DTYPES else w.dtype


def _dtype_after(run: Replay, refused: Refused, w: Witness) -> str:
    host = Op(refused.op, "", refused.phase, refused.module, refused.place, (), (), 1)
    return run.dtype_of(host, Input(w.dtype, w.event, w.producer, w.name.rpartition(".")[2], w.holder, w.shape))


def given_again(run: Replay, refused: Refused, casts: Mapping[int, str] = NONE) -> dict[int, str]:
    """The dtypes of a refused call's tensors after a change, by index. ``casts``: dtypes that the call casts to."""
    return {w.index: casts.get(w.index) or _dtype_after(run, refused, w) for w in _tensors(refused)}


def refused_again(
    run: Replay, refused: Refused, casts: Mapping[int, str] = NONE, numbers: Mapping[int, float] = NONE
) -> Prediction:
    """What becomes of a call that was refused, after a change. ``casts``: what is cast in the call, by index;
    ``numbers``: the Python numbers that are written instead."""
    return refused_with(refused, given_again(run, refused, casts), numbers)


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
    for name in named:
        seen = table.possible(name, before)
        kept = [dict(a) for a, outcome in seen.items() if isinstance(outcome, Refuses)]
        answers = {o for a, o in table.possible(name, after).items() if _fits(dict(a), kept)} if kept else set()
        if answers:
            return answers.pop() if len(answers) == 1 else NO_RULE
    return NO_RULE if named or refused.wants != "agree" else _agreed(refused, after)


NO_RULE = Unknown("no rule says what this call does")
ENGINE = frozenset({"backward", "grad"})
"""What these refuse is refused by the autograd engine, or by what it calls: hooks, and reducers of gradients."""


def _refused_call(refused: Refused, now: Mapping[int, str], numbers: Mapping[int, float]) -> Call:
    operands = (Given(now.get(w.index, w.dtype), len(w.shape), 0 in w.shape) for w in _tensors(refused))
    scalars = (_number(w, numbers) for w in refused.witnesses if w.dtype.startswith(PYTHON))
    known = tuple(n for n in scalars if n is not None)
    return Call(tuple(operands), known or None)


def _number(scalar: Witness, numbers: Mapping[int, float]) -> Number | None:
    """A Python number of a refused call; None where its value was not recorded."""
    try:
        return Number(scalar.dtype.removeprefix(PYTHON), abs(numbers.get(scalar.index, float(scalar.name))))
    except ValueError:
        return None


def _tensors(refused: Refused) -> list[Witness]:
    """The tensors of a refused call, in the order of its arguments."""
    return sorted((w for w in refused.witnesses if not w.dtype.startswith(PYTHON)), key=lambda w: w.index)


def _agreed(refused: Refused, after: Call) -> Prediction:
    """What the engine does, or a communication of several ranks, for which there is no operator: what they refuse with
    says that the operands must agree."""
    return Refuses(refused.code) if len(set(after.floating)) > 1 else Gives(())


@dataclass(frozen=True)
class After:
    """What would be refused after a change: recorded calls that ran, and refused ones that would still be refused."""

    op: int
    """Index of a recorded op that would be refused, -1 for a call that was already refused."""
    refused: int
    """Index of a refused call that would still be refused, -1 for an op that ran."""
    code: str


def refused_after(recording: Recording, change: DtypeChange) -> tuple[After, ...]:
    """Every recorded call that would be refused after a change: checked before the change is advised."""
    return tuple(refusals(Replay(recording, change)))


def refusals(run: Replay) -> Iterator[After]:
    """The calls of a changed run that would be refused, in the order of the recording."""
    for number, carried in enumerate(run.ops):
        if carried.code:
            yield After(number, -1, carried.code)
    for number, refused in enumerate(run.recording.refused):
        outcome = refused_again(run, refused)
        if isinstance(outcome, Refuses):
            yield After(-1, number, outcome.code)
