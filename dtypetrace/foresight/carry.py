"""Propagates changed dtypes through the ops of a recording, op by op, from the ops that made their operands.

Some things are not recorded and are assumed. A gradient has the dtype of the tensor that it is the gradient of,
because the engine casts it so; a tensor that autograd saved has the dtype in which the forward op computed with it. A
cast of autocast's is not an op of its own: what autocast does to an op's operands is worked out again. A cast that
torch makes inside a function ends in the dtype of the function's first operand, if it did before, and so does a number
that the function turns into a tensor. An optimizer's step is worked out from the parameters as they would be: its
gradients and its state have their dtypes, as far as they did before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .. import graph
from ..records import FORWARD, Event, Input, Op, Read, Recording, Refused, Unchanged, Witness
from ..tables import autocast
from ..tables.dtypes import DTYPES, FLOATING, wider
from ..tables.operators import NAMED_CASTS, is_cast, name_of
from ..tables.rule_language import Gives, Prediction, Refuses
from .calls import NONE, guess, predict, refused_with, spread, tensors, widens
from .changes import DtypeChange, Parameters


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
        self._steps: dict[str, dict[int, Carried]] = {}
        """What the optimizer's ops would do with the parameters of each dtype that there would be."""
        self._cast_to: dict[int, str] = {}
        """What a cast under autocast would end in, as the op after it takes its result."""
        self._stepped = ""
        """The dtype of those that are stepped now."""
        self._given: dict[tuple[int, str], str] = {}
        """The dtype in which a tensor that an event decided was first taken, by that event and its recorded dtype."""
        for number, op in enumerate(recording.ops):
            self.ops.append(self._step(number, op) if op.phase == "optimizer" else self._carried(number, op))
            for i, now in zip(op.inputs, self.ops[-1].inputs):
                self._given.setdefault((i.event, i.dtype), now)

    # ------------------------------------------------------------ operands

    def dtype_of(self, op: Op, operand: Input) -> str:
        """The dtype that an operand has after the change."""
        if operand.dtype not in DTYPES:
            return operand.dtype
        if (stepped := self._of_stepped(op, operand)) is not None:
            return stepped
        changed = self.parameters.dtype(op, operand)
        dtype = changed or operand.dtype
        if changed is None:
            if operand.holder != "parameter" and 0 <= operand.producer < len(self.ops):
                dtype = self.result_of(operand.producer, operand.dtype, operand.event, op.place)
            else:
                dtype = self.change.births.get(operand.event, operand.dtype)
        return self._cast_between(op, operand, dtype)

    def _of_stepped(self, op: Op, operand: Input) -> str | None:
        """The dtype of a parameter that is stepped, of its gradient or its state; None for another operand.

        A record of the optimizer's stands for the calls of all parameters, so what it was given first says nothing.
        """
        made = self.recording.ops[operand.producer] if operand.producer >= 0 else None
        gradient = operand.holder == "gradient" or made is not None and made.phase == "backward"
        after = self.parameters.stepped.get(operand.dtype, ())
        if op.phase != "optimizer":  # a gradient on its way: clipped, averaged, unscaled
            own = len(after) == 1 and gradient and op.phase != "backward"
            return next(iter(after)) if own else None
        state = operand.holder == "state" or made is None and operand.holder is None and bool(operand.shape)
        mine = operand.holder == "parameter" or gradient or state
        return self._stepped if mine and self._stepped in after else None

    def _step(self, number: int, op: Op) -> Carried:
        """What an op of the optimizer would do: the first refusal, else what it would do to most parameters."""
        asked: dict[str, Carried] = {}
        for dtype in self.parameters.trained:
            self._stepped = dtype
            asked[dtype] = self._steps.setdefault(dtype, {})[number] = self._carried(number, op)
        self._stepped = ""
        found = list(asked.values()) or [self._carried(number, op)]
        return next((carried for carried in found if carried.code), found[0])

    def _cast_between(self, op: Op, operand: Input, dtype: str) -> str:
        """The dtype of an operand after a cast that changed nothing when it was recorded but would change it now.

        Where it took its dtype from another tensor's, the operand says so. Else it is not recorded which uses of a
        tensor came after such a cast: those in the same function are assumed to.
        """
        event = self._cast_to_itself(operand)
        if event is not None and (read := self._read(event)) is not None:
            return self._of_read(read)
        for cast in self._unchanged.get(_made(operand), ()):
            if cast.dtype == operand.dtype and self._together(cast, op):
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

    def _together(self, cast: Unchanged, op: Op) -> bool:
        """Whether a cast and an op are in the same function, of the same module or, where that calls a part of its
        own, called from the same lines."""
        stacks = [graph.place_of(self.recording, one.place).stack for one in (cast, op)]
        inside = cast.module == op.module or stacks[0][1:] == stacks[1][1:]
        return inside and all(stacks) and len({(s[0].file, s[0].function) for s in stacks}) == 1

    def result_of(self, producer: int, recorded: str, event: int, user: int = -1) -> str:
        """The dtype of an op's result where it is used, given the result's recorded dtype."""
        cast = self.change.results.get(producer)
        if cast is not None and user not in self.change.inside and (cast in FLOATING) == (recorded in FLOATING):
            return cast
        before = self.recording.ops[producer]
        now = self._steps.get(self._stepped, {}).get(producer) or self.ops[producer]
        if self._of_another_call(before, recorded, event):
            return self._of_step(event, recorded)
        if recorded in before.outputs:
            return now.outputs[before.outputs.index(recorded)]
        written = [n for n in before.written if n < len(before.inputs) and before.inputs[n].dtype == recorded]
        mine = next((n for n in written if before.inputs[n].event == event), next(iter(written), -1))
        # else the op made something else: a tensor's ``data`` was replaced
        return now.inputs[mine] if mine >= 0 else self.change.births.get(event, recorded)

    def _of_another_call(self, op: Op, recorded: str, event: int) -> bool:
        """Whether a tensor was made by another call of a record than that which gave the record its operands: a product
        prepares both of its operands alike. Such a call passes on the dtype of its one operand."""
        alone = event >= 0 and len(op.inputs) == 1 and op.phase in FORWARD
        passed = alone and op.inputs[0].dtype == recorded and recorded in op.outputs
        made = self.recording.events[event] if passed and op.inputs[0].event != event else None
        return made is not None and made.how != "attribute" and made.place != op.place

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
        for i, dtype in zip(op.inputs, effective):
            if i.producer >= 0 and self.recording.ops[i.producer].autocast and is_cast(self.recording.ops[i.producer]):
                self._cast_to.setdefault(i.producer, dtype)
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
        """Op -> the changed event of its result, if no operand has that event, nor a parameter of the call."""
        found: dict[int, int] = {}
        for taken in _taken(self.recording):
            for i in taken:
                if i.event in self.change.births and i.producer >= 0:
                    made = self.recording.ops[i.producer]
                    own = all(o.event != i.event for o in made.inputs) and not self._held(i.producer, i.event)
                    if i.dtype in made.outputs and own and not self._of_another_call(made, i.dtype, i.event):
                        found.setdefault(i.producer, i.event)
        return found

    def _held(self, number: int, event: int) -> bool:
        """Whether a parameter that the rest of an op's call takes has an event: the first op stands for the call."""
        first = self.recording.ops[number]
        for op in self.recording.ops[number + 1 :]:
            if (op.op, op.place, op.module) != (first.op, first.place, first.module):
                return False
            if any(i.event == event and i.holder == "parameter" for i in op.inputs):
                return True
        return False

    def _gradients(self, op: Op, given: tuple[str, ...]) -> tuple[str, ...]:
        """The operands of a backward op: incoming gradients have the dtype of its forward op's results, and what was
        saved for it has the dtype in which the forward op computed with it, after autocast's cast."""
        forward, now = self.recording.ops[op.of], self.ops[op.of]
        saved = {_made(i): dtype for i, dtype in zip(forward.inputs, now.inputs)}
        found = [saved.get(_made(i)) or self._cast_to.get(i.producer, dtype) for i, dtype in zip(op.inputs, given)]
        if not forward.outputs or not now.outputs:
            return tuple(found)
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
        if op.autocast and self._is_autocasts(op):
            return given[0]
        if given[0] == recorded:
            return recorded
        if wider(recorded, op.inputs[0].dtype) and wider(given[0], recorded):
            return given[0]  # a function that computes in no less than float32 leaves float64 as it is
        first = self._first.get(_function(op), "")
        before = self._recorded_first(op)
        return first if before == recorded and first else recorded

    def _is_autocasts(self, op: Op) -> bool:
        """Whether autocast made a cast, and not the function that it is in: autocast casts what a function is given, in
        the direction of the function's rule. Which operator inside a function without a rule is meant is not known."""
        device, _, region = op.autocast.partition(":")
        rule = autocast.policy(op.op, "", device)
        to = {"lower": (region,), "float32": ("float32",)}.get(rule, (region, "float32"))
        return op.outputs[0] in to and not (rule and self._inside(op, op.inputs[0]))

    def _inside(self, op: Op, operand: Input) -> bool:
        """Whether the function that an op is in made its operand, and did not cast what it was given for autocast."""
        if operand.producer < 0:
            return False
        made = self.recording.ops[operand.producer]
        return _function(made) == _function(op) and not (is_cast(made) and made.autocast and self._is_autocasts(made))

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
        """The dtype of the tensors that an event decided, after the change; as recorded where that is not known."""
        if event in self.change.births:
            return self.change.births[event]
        owner = next((p for p in self.recording.parameters if p.event == event), None)
        if owner is not None:
            return self.parameters.now(owner)
        made = self._makers.get((event, recorded), -1)
        if 0 <= made < len(self.ops):
            return self.ops[made].outputs[self.recording.ops[made].outputs.index(recorded)]
        return self._given.get((event, recorded), recorded)

    @cached_property
    def _makers(self) -> dict[tuple[int, str], int]:
        """An event and its dtype -> the op whose result it decided: the last one of the call."""
        made = {(o.op, o.place, o.module, dtype): n for n, o in enumerate(self.recording.ops) for dtype in o.outputs}
        keys = (((n, e.to), (e.op, e.place, e.module, e.to)) for n, e in enumerate(self.recording.events))
        return {event: made[key] for event, key in keys if key in made}

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
        cast = autocast.cast(autocast.policy(op.op, name_of(op), device), given, region)
        if not autocast.policy(op.op, "", device):
            return cast  # the rule is the operator's, whatever function calls it
        return tuple(had if self._inside(op, i) else now for i, had, now in zip(op.inputs, given, cast))

    def _asked(self, op: Op, before: tuple[str, ...], given: tuple[str, ...]) -> Carried:
        outcome = predict(op, before, given)
        ran = self._ran.get((op.aten, given))
        if ran is not None and isinstance(outcome, Refuses):
            outcome = Gives(ran)  # the table depends on arguments that are not recorded; what ran is known to run
        widened = widens(given, outcome) and not widens(before, Gives(op.outputs))
        if isinstance(outcome, Gives):
            made = outcome.dtypes if len(outcome.dtypes) == len(op.outputs) else spread(outcome.dtypes, op.outputs)
            return Carried(given, made, widens=widened)
        guessed = guess(before, given, op.outputs)
        if isinstance(outcome, Refuses):
            return Carried(given, guessed, code=outcome.code)
        return Carried(given, guessed, unknown=outcome.why)


def _taken(recording: Recording) -> Iterator[Sequence[Input | Witness]]:
    """What each call was given, those that were refused included."""
    yield from (op.inputs for op in recording.ops)
    yield from (refused.witnesses for refused in recording.refused)


def _made(operand: Input) -> tuple[int, int]:
    """What tells two operands apart: the op that made each, else the event that decided its dtype."""
    return operand.producer, operand.event if operand.producer < 0 else -1


def _function(op: Op) -> tuple[str, int, str, str]:
    """The key that distinguishes the calls of a function, as far as recorded."""
    return op.op, op.place, op.module, op.phase


def operands_of(run: Replay, refused: Refused) -> Iterator[tuple[str, str]]:
    """The dtypes of a refused call's operands, as recorded and after the change."""
    for w in sorted(refused.witnesses, key=lambda w: w.index):
        yield w.dtype, _dtype_after(run, refused, w) if w.dtype in DTYPES else w.dtype


def _dtype_after(run: Replay, refused: Refused, w: Witness) -> str:
    host = Op(refused.op, "", refused.phase, refused.module, refused.place, (), (), 1)
    return run.dtype_of(host, Input(w.dtype, w.event, w.producer, w.name.rpartition(".")[2], w.holder, w.shape))


def given_again(run: Replay, refused: Refused, casts: Mapping[int, str] = NONE) -> dict[int, str]:
    """The dtypes of a refused call's tensors after a change, by index. ``casts``: dtypes that the call casts to."""
    return {w.index: casts.get(w.index) or _dtype_after(run, refused, w) for w in tensors(refused)}


def refused_again(
    run: Replay, refused: Refused, casts: Mapping[int, str] = NONE, numbers: Mapping[int, float] = NONE
) -> Prediction:
    """What becomes of a call that was refused, after a change. ``casts``: what is cast in the call, by index;
    ``numbers``: the Python numbers that are written instead."""
    return refused_with(refused, given_again(run, refused, casts), numbers)


@dataclass(frozen=True)
class After:
    """What would be refused after a change: recorded calls that ran, and refused ones that would still be refused."""

    op: int
    """Index of a recorded op that would be refused, -1 for a call that was already refused."""
    refused: int
    """Index of a refused call that would still be refused, -1 for an op that ran."""
    code: str


def refusals(run: Replay) -> Iterator[After]:
    """The calls of a changed run that would be refused, in the order of the recording."""
    for number, carried in enumerate(run.ops):
        if carried.code:
            yield After(number, -1, carried.code)
    for number, refused in enumerate(run.recording.refused):
        outcome = refused_again(run, refused)
        if isinstance(outcome, Refuses):
            yield After(-1, number, outcome.code)
