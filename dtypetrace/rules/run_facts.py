"""What all rules about silent changes need from a recording.

A silent change is compared with the dtype that the program was meant to have at that place: that of most of the
parameters of the model that ran there, else of the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain
from math import prod
from typing import Any

from .. import graph
from ..foresight import DtypeChange, Replay
from ..records import FORWARD, Input, Later, Op, Operand, Origin, Place, Reach, Recording, Value
from ..source import expressions, operands
from ..tables.dtypes import FLOATING, REAL
from ..tables.english import quoted
from ..tables.operators import NAMED_CASTS, destination, flops, is_cast, is_move, name_of, result_bytes, tagged, writes


def reach_of(ops: Iterable[Op]) -> Reach:
    """What ops made up, with all their calls."""
    ran = list(ops)
    work = sum(flops(op) * op.count for op in ran)
    return Reach(sum(op.count for op in ran), work, sum(result_bytes(op) * op.count for op in ran))


MOST_OPS = 50_000
"""Recordings with more distinct ops are not replayed with a change: that would take too long."""
FAR = 64
"""How many ops below one, or above it, are examined where a rule asks what its numbers are, or are for."""


def quantity(amount: int, unit: str) -> str:
    """A count of bytes or operations with a prefix.

    >>> quantity(4_100_000_000, "FLOP"), quantity(900, "B")
    ('4.1 GFLOP', '900 B')
    """
    value = float(amount)
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if not prefix else f"{value:.{1 if value < 99.95 else 0}f} {prefix}{unit}"
        value /= 1000
    return f"{value:,.0f} P{unit}"


class Run:
    """A recording, with facts that several rules need."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ops = recording.ops
        self._roots: dict[str, str] = {}
        self._given: Counter[str] = Counter()
        self._replays: dict[str, Replay] = {}

    def after(self, change: DtypeChange) -> Replay | None:
        """The run with other dtypes, replayed once for each change; None where it is too long for that."""
        if len(self.ops) > MOST_OPS:
            return None
        key = repr(change)
        if key not in self._replays:
            self._replays[key] = Replay(self.recording, change)
        return self._replays[key]

    @cached_property
    def writers(self) -> dict[int, list[int]]:
        """The ops that write into what an op made, through views."""
        found: dict[int, list[int]] = {}
        for number, op in enumerate(self.ops):
            if writes(op) and 0 <= destination(op) < len(op.inputs):
                made = graph.unmoved(self.ops, op.inputs[destination(op)].producer)
                found.setdefault(made, []).append(number)
        return found

    def same_call(self, number: int) -> list[int]:
        """The ops of one call: those that a linear or recurrent layer runs share its name and place. Equal ones share
        one record, which knows the operands of the first alone."""
        op = self.ops[number]
        return self._calls[op.op, op.place, op.module] if op.module else [number]

    @cached_property
    def _calls(self) -> dict[tuple[str, int, str], list[int]]:
        found: dict[tuple[str, int, str], list[int]] = {}
        for number, op in enumerate(self.ops):
            found.setdefault((op.op, op.place, op.module), []).append(number)
        return found

    def root(self, module: str) -> str:
        """The outermost module called that a module belongs to."""
        if module not in self._roots:
            parts = module.split(".")
            names = (".".join(parts[: n + 1]) for n in range(len(parts)))
            self._roots[module] = next((n for n in names if n in self.module_names), module)
        return self._roots[module]

    @cached_property
    def module_names(self) -> frozenset[str]:
        return frozenset(self.recording.modules) - {""}

    @cached_property
    def _sizes(self) -> dict[str | int, Counter[str]]:
        """How many numbers of each dtype are in the floating parameters used in each model's forward, by the model's
        name and number."""
        seen: set[tuple[object, ...]] = set()
        sizes: dict[str | int, Counter[str]] = {}
        for op in self.ops:
            if not op.module or op.phase not in ("forward", "recompute"):
                continue
            for i in op.inputs:
                key = op.model, op.module, i.event, i.shape, i.dtype
                if i.holder != "parameter" or i.dtype not in REAL or key in seen:
                    continue
                seen.add(key)
                size = prod(max(n, 1) for n in i.shape)
                for model in (self.root(op.module), op.model) if op.model >= 0 else (self.root(op.module),):
                    sizes.setdefault(model, Counter())[i.dtype] += size
        return sizes

    @cached_property
    def _of_run(self) -> str | None:
        total: Counter[str] = Counter()
        for model, sizes in self._sizes.items():
            if isinstance(model, str):
                total += sizes
        if not total:
            for p in self.recording.parameters:
                total[p.dtype] += p.size if p.holder == "parameter" else 0
            total = +total
        return total.most_common(1)[0][0] if total else None

    @cached_property
    def gathered(self) -> str | None:
        """The dtype of the copies of the parameters that FSDP computes with; None without FSDP, or without such."""
        return next((s.computes for plan in self.recording.plans for s in plan.shared if s.computes), None)

    def dominant(self, op: Op) -> str | None:
        """The dtype of most parameters of the model that an op ran in, else of the run; None where there are none."""
        if self.gathered is not None:
            return self.gathered
        sizes = self._sizes.get(op.model) or self._sizes.get(self.root(op.module)) if op.module else None
        return sizes.most_common(1)[0][0] if sizes else self._of_run

    def computes_in(self, number: int) -> str | None:
        """The dtype of the weights that a model computed with when an op ran: those of its nearest op that takes one.

        A model that is cast after training has weights of two dtypes in one run.
        """
        op = self.ops[number]
        root = self.root(op.module) if op.module else None
        near = min(self._weighted.get(root, ()), key=lambda n: abs(n - number), default=None)
        return None if near is None else next(i.dtype for i in self.ops[near].inputs if i.holder == "parameter")

    @cached_property
    def _weighted(self) -> dict[str | None, list[int]]:
        """The forward ops of each model that take a floating weight."""
        found: dict[str | None, list[int]] = {}
        for number, op in enumerate(self.ops):
            weights = [i for i in op.inputs if i.holder == "parameter" and i.dtype in REAL]
            if op.module and op.phase in FORWARD and weights:
                found.setdefault(self.root(op.module), []).append(number)
        return found

    def event_of_weights(self, op: Op, made: str) -> int:
        """The event that decided the dtype of the weights of an op's model, -1 if the op computes in another."""
        at = self.recording.ops[op.of] if op.phase == "backward" and op.of >= 0 else op
        if not at.module or at.autocast:
            return -1
        held = next((i.event for i in at.inputs if i.holder == "parameter" and i.dtype == made and i.event >= 0), -1)
        root = at.module.partition(".")[0]
        own = [p for p in self.recording.parameters if p.name.partition(".")[0] == root and p.event >= 0]
        largest = max(own, key=lambda p: p.size, default=None)
        return held if held >= 0 else largest.event if largest is not None and largest.dtype == made else -1

    @cached_property
    def events_of_weights(self) -> frozenset[int]:
        """The events that decided the dtypes of parameters."""
        return frozenset(i.event for op in self.ops for i in op.inputs if i.holder == "parameter" and i.event >= 0)

    def weight_of(self, i: Input) -> bool:
        """Whether an operand is a parameter, perhaps transposed."""
        while i.holder is None and i.producer >= 0 and is_move(self.ops[i.producer]) and self.ops[i.producer].inputs:
            i = self.ops[i.producer].inputs[0]
        return i.holder == "parameter"

    def holds(self, module: str) -> bool:
        """Whether a module belongs to a model with floating parameters; a loss has none."""
        return bool(module) and self.root(module) in self._sizes

    def arithmetic(self, op: Op) -> int:
        """Bytes of all results of an op in forward; 0 for an op that only moves or casts numbers."""
        if op.phase not in FORWARD or is_move(op) or is_cast(op) or not op.outputs or op.outputs[0] not in REAL:
            return 0
        return result_bytes(op) * op.count

    def given(self, module: str) -> int:
        """Bytes of the results of all arithmetic of a module's model in forward; outside any module, of the run."""
        if not self._given:
            for op in self.ops:
                self._given[self.root(op.module)] += self.arithmetic(op)
        return self._given[self.root(module)] if module else self._given.total()

    @cached_property
    def autocasts(self) -> frozenset[str]:
        """The dtypes that autocast computed in, wherever it was on."""
        return frozenset(op.autocast.partition(":")[2] for op in self.ops if op.autocast)

    @cached_property
    def values(self) -> dict[int, Value]:
        """What was measured of each op's results."""
        return {v.op: v for v in self.recording.values}

    @cached_property
    def _errors(self) -> dict[int, float]:
        """The measured error of each op's results, relative to them."""
        return {p.op: p.total for p in (*self.recording.spot_checks, *self.recording.precisions)}

    def exact(self, number: int) -> bool:
        """Whether an op's results were measured and have no error at all."""
        return not self._errors.get(number, 1.0)

    def beside(self, event: int) -> list[int]:
        """The events of other casts on a line from and to the same dtypes, whose results meet its own, such as those of
        a real and an imaginary part: what is computed from both has the wider dtype, and what the other one rounded."""
        events, made = self.recording.events, self.recording.events[event]
        frame = next(iter(graph.place_of(self.recording, made.place).stack), None)
        if made.how != "cast" or frame is None:
            return []
        found: dict[int, int] = {}
        for n, other in enumerate(events):
            at = next(iter(graph.place_of(self.recording, other.place).stack), None)
            same = (other.how, other.to, other.source) == (made.how, made.to, made.source) and other.place != made.place
            if at is not None and same and (at.file, at.line) == (frame.file, frame.line):
                found.update(
                    {other.place: n} if any({n, event} <= {i.event for i in op.inputs} for op in self.ops) else {}
                )
        return list(found.values())

    def measured_above(self, number: int) -> set[int]:
        """The measured ops from which an op's operands came, in any of its calls, as far as is known."""
        return {*graph.reached([number], lambda n: self._above.get(n, ()))}

    def comes_back(self, number: int) -> bool:
        """Whether an op takes what was computed from its result of the call before, as far as is known."""
        return any(number in self.measured_above(n) for n in self._above.get(number, ()))

    @cached_property
    def _above(self) -> dict[int, tuple[int, ...]]:
        return {p.op: p.above or () for p in (*self.recording.spot_checks, *self.recording.precisions)}

    @cached_property
    def peaks(self) -> dict[int, float]:
        """The greatest magnitude in each op's results, where values were measured."""
        return {number: v.peak for number, v in self.values.items()}

    @cached_property
    def _takers(self) -> list[list[tuple[int, int, int]]]:
        """For each op the operands that were its result: the op that took it, the operand's index, and its event."""
        takers: list[list[tuple[int, int, int]]] = [[] for _ in self.ops]
        for number, op in enumerate(self.ops):
            for index, i in enumerate(op.inputs):
                if i.producer >= 0:
                    takers[i.producer].append((number, index, i.event))
        for later in chain(*self._later.values()):
            if all(user != later.op for user, *_ in takers[later.producer]):
                takers[later.producer].append((later.op, later.index, later.event))
        return takers

    @cached_property
    def _later(self) -> dict[int, list[Later]]:
        later: dict[int, list[Later]] = defaultdict(list)
        for one in self.recording.later:
            later[one.op].append(one)
        return later

    @cached_property
    def first_users(self) -> list[list[int]]:
        """The ops of which the first call uses each op's result: those that a replay can follow."""
        first = lambda taker, number: self.ops[taker[0]].inputs[taker[1]].producer == number
        return [[t[0] for t in takers if first(t, number)] for number, takers in enumerate(self._takers)]

    @cached_property
    def users(self) -> list[list[int]]:
        """The ops that use each op's result."""
        return [[user for user, *_ in takers] for takers in self._takers]

    def taken(self, number: int) -> list[Input]:
        """The operands of other ops that are an op's result."""
        return [self.ops[user].inputs[index] for user, index, _ in self._takers[number]]

    def below(
        self, numbers: Iterable[int], on: Callable[[int], bool], most: int = 1 << 30
    ) -> Iterator[tuple[int, list[int]]]:
        """The ops that use some ops' results, each once and at most ``most``, in the order in which they ran: their
        numbers, and the indices of the operands that come from there. The search goes on below those for which ``on``.
        """
        reached, given = set(numbers), set[int]()
        front = [user for number in reached for user in self.users[number]]
        heapify(front)
        while front and len(given) < most:
            user = heappop(front)
            if user in given:
                continue
            given.add(user)
            taken = [n for n, i in enumerate(self.ops[user].inputs) if i.producer in reached]
            yield user, taken or [later.index for later in self._later.get(user, ()) if later.producer in reached]
            if user not in reached and on(user):
                reached.add(user)
                for further in self.users[user]:
                    heappush(front, further)

    def moves(self, number: int) -> bool:
        """Whether an op only moves or casts numbers."""
        return is_move(self.ops[number]) or is_cast(self.ops[number])

    def is_pole(self, number: int) -> bool:
        """Whether an op is infinite where its last operand is zero: of powers, one with a negative exponent."""
        op = self.ops[number]
        if not (tagged(op.op, "pole") or tagged(op.aten.split(".")[0], "pole")):
            return False
        at = self.place(op).stack[:1]
        raised = expressions.exponent(self.recording.text, at[0]) if name_of(op) == "pow" and at else None
        return raised is None or raised < 0

    def place(self, op: Op) -> Place:
        return graph.place_of(self.recording, op.place)

    def origin(self, event: int, expected: str | None, name: str | None = None) -> Origin:
        """What decided a dtype: of a default dtype, which is right for other tensors, the call that took it and named
        none."""
        return graph.origin(self.recording, event, expected, name, default=False)

    def operand(self, op: Op, index: int, expected: str | None) -> Operand:
        """An op's operand as a finding shows it, by the name that the program writes."""
        i, place = op.inputs[index], self.place(op)
        by_autocast = is_cast(op) and op.op not in NAMED_CASTS
        if i.name:
            name, written = self._within(op, i.name), ""
        elif i.holder is not None and by_autocast:  # the call's text names what a module gets, not what it holds
            module = self._within(op, "").rstrip(".")
            name, written = f"a {i.holder} of {quoted(module)}" if module else f"a {i.holder}", ""
        else:
            name = argument_of(op, index)
            frame, at = place.stack[0] if place.stack else None, self.written_at(op, index)
            written = ""
            if frame is not None and at is not None:
                written = operands.argument(self.recording.text, frame, op.op, op.module, name, at)
            name = name if written else _ROLES.get(name, name)
        origin = self.origin(i.event, expected, i.name or None)
        return Operand(index, name, i.dtype, i.shape, op.device, i.holder, origin, written)

    def written_at(self, op: Op, index: int) -> int | None:
        """The number of an operand among those that the program writes, where Python's numbers have a place, too; None
        where the text does not say it."""
        if name_of(op) == "where" and len(op.inputs) < 3:
            return None if index else 0
        place = self.place(op)
        if len(op.inputs) != 1 or not place.stack:
            return index
        made = op.inputs[0].producer
        before = self.place(self.ops[made]) if made >= 0 else graph.NOWHERE
        return operands.tensor_side(self.recording.text, place.stack[0], op.op, before)

    def _within(self, op: Op, name: str) -> str:
        """A parameter's name in the outermost module called."""
        module = op.module.removeprefix(self.root(op.module)).lstrip(".")
        return f"{module}.{name}" if module else name

    def made_like(self, i: Input, expected: str | None) -> Origin | None:
        """Where an operand was made like another tensor (``zeros_like(x)``, ``x.new_zeros(n)``): its own origin if x
        has the expected dtype or is a weight, which has the dtype that its model was cast to; else None."""
        number = i.producer
        while number >= 0:
            op = self.ops[number]
            if tagged(op, "like"):
                right = expected in (None, i.dtype) or bool(op.inputs) and op.inputs[0].holder == "parameter"
                likened = right and op.outputs[:1] == (i.dtype,) and [o.dtype for o in op.inputs] == [i.dtype]
                return Origin("factory", None, op.op, self.place(op)) if likened else None
            if not (writes(op) or is_move(op)) or not op.inputs:
                return None
            number = op.inputs[max(destination(op), 0)].producer
        return None

    def asked_like(self, i: Input) -> Origin | None:
        """Where the program made an operand and named another tensor's dtype for it (``zeros(n, dtype=x.dtype)``)."""
        event = self.recording.events[i.event] if i.event >= 0 else None
        if event is None or event.how != "factory" or not event.explicit or not event.reads:
            return None
        return Origin("factory", None, event.op, graph.place_of(self.recording, event.place), True)

    def event_of(self, number: int) -> int:
        """The event of an op's result, as recorded by an op that used it; -1 where none did."""
        return next((event for *_, event in self._takers[number]), -1)

    def result(self, number: int, expected: str | None) -> Operand:
        """An op's result, as an operand of the next op."""
        op, event = self.ops[number], self.event_of(number)
        origin = self.origin(event, expected) if event >= 0 else Origin("factory", None, op.op, self.place(op))
        return Operand(0, op.op, op.outputs[0], op.shape, op.device, None, origin)

    def of_call(self, number: int) -> int:
        """An op; for that by which a call makes a tensor of a number, as ``torch.where(mask, x, -1e9)`` does, the op of
        the same call which takes it."""
        op = self.ops[number]
        users = self.users[number] if not op.inputs else ()
        return next((n for n in users if (self.ops[n].op, self.ops[n].place) == (op.op, op.place)), number)

    def used_as(self, number: int) -> str:
        """How the program writes an op's result in the first op that takes it; empty where that is no name."""
        for user, taken, _ in self._takers[number]:
            if (written := self.operand(self.ops[user], taken, None).written).replace(".", "").isidentifier():
                return written
        return ""

    def computed(self, i: Input) -> bool:
        """Whether an operand is data on its way through the model: the result of arithmetic in its dtype, or an
        input."""
        if i.holder is not None:
            return False
        number, dtype = i.producer, i.dtype
        event = i.event
        while number >= 0:
            op = self.ops[number]
            if not op.outputs or op.outputs[0] != dtype:
                return False
            first = next((o for o in op.inputs if o.dtype in REAL), None)
            if first is None:
                return False  # a factory: a table, a constant
            if is_cast(op) and first.dtype != dtype:
                return bool(op.module)
            if not (is_move(op) or is_cast(op)):
                return True
            if first.holder is not None:
                return False
            number, event = first.producer, first.event
        return event >= 0 and self.recording.events[event].how in ("input", "worker")


def argument_of(op: Op, index: int) -> str:
    """The name of an operand in the operator's signature."""
    if tagged(op, "join"):
        return f"tensors[{index}]"
    if index and index == destination(op):
        return "out"
    arguments = _ARGUMENTS.get(name_of(op), ("input", "other", "third"))
    return arguments[index] if index < len(arguments) else f"operand {index}"


_ROLES = {"self": "the destination", "source": "the value", "values": "the value"}
"""What an operand of a write is, where the program's text does not name it."""
_ARGUMENTS = {
    "where": ("condition", "input", "other"),
    "copy": ("self", "source"),
    "index_put": ("self", "indices", "values"),
}


# ---------------------------------------------------------------- weights


@dataclass(frozen=True, slots=True)
class Weight:
    """One floating parameter or buffer."""

    module: str
    """The module that holds it, or the one whose op used it."""
    dtype: str
    size: int
    """Its numbers."""
    event: int
    """What decided its dtype, -1 where that is not known."""


def held_weights(recording: Recording) -> Iterator[Weight]:
    """Every parameter and buffer that the recording lists. A model that was gone at the end has no list of them: there,
    those that its forward ops used, each once."""
    listed = set()
    for p in recording.parameters:
        listed.add(p.name.partition(".")[0])
        yield Weight(p.name.rpartition(".")[0], p.dtype, p.size, p.event)
    used: set[tuple[Any, ...]] = set()
    for op in recording.ops:
        if not op.module or op.phase not in FORWARD or op.module.partition(".")[0] in listed:
            continue
        for operand in op.inputs:
            key = (op.module, operand.dtype, operand.shape, operand.name)
            if operand.holder in ("parameter", "buffer") and operand.dtype in FLOATING and key not in used:
                used.add(key)
                yield Weight(op.module, operand.dtype, prod(operand.shape), operand.event)
