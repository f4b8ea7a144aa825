"""How dtypes flowed: origins and flows over a recording, and the networkx graph of it.

Each event names the one before it, so a flow follows the path that the tensor really took. The merged graph has cycles
(loops in the program), and a shortest path in it may be one that no tensor took: use it only to explore.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, TypeVar

from .errors import UnknownNameError
from .records import Chain, Event, FlowStep, Input, Op, Origin, Place, Read, Recording, Unchanged, Witness
from .tables.dtypes import FLOATING, STORAGE_ONLY, wider
from .tables.operators import NAMED_CASTS, SCALER_CHECKS, destination, is_cast, is_move, tagged
from .terminal import seen

if TYPE_CHECKING:
    import networkx as nx

NOWHERE = Place()
_Node = TypeVar("_Node")


def place_of(recording: Recording, number: int) -> Place:
    return recording.places[number] if 0 <= number < len(recording.places) else NOWHERE


def ran(recording: Recording, op: Op) -> Origin:
    """An op as what decided a dtype."""
    return Origin("op", None, op.op, place_of(recording, op.place))


def scaler_check(recording: Recording) -> Op | None:
    """The first op by which a loss scaler looked at gradients; None where none did."""
    return next((op for op in recording.ops if op.aten.startswith(SCALER_CHECKS)), None)


def has_scaler(recording: Recording) -> bool:
    """Whether a loss scaler was named to the plan, or checked gradients."""
    return any(plan.scaler for plan in recording.plans) or scaler_check(recording) is not None


# ---------------------------------------------------------------- origins and flows


@dataclass(frozen=True)
class Lineage:
    """The events that led to a dtype, origin first, with the reason that each one leads to the next."""

    events: tuple[Event, ...]
    hows: tuple[str, ...]
    reads: tuple[Read | None, ...]
    """For each event whose dtype was read from an attribute, that read."""

    @property
    def root(self) -> Event:
        return self.events[0]


def lineage(recording: Recording, event: int, expected: str | None = None) -> Lineage | None:
    """Follows an event back to its origin.

    ``expected`` is the dtype that the run was meant to have there. It decides two questions. Where a dtype was read
    from an attribute (``x.to(y.dtype)``): if y has the wrong dtype, follow y; if y has the expected dtype, or that of
    most of the run, the cast itself is the cause. Where operands of two dtypes were promoted to a third (bfloat16 and
    float16 to float32): follow the one that does not have the expected dtype.
    """
    event = _of_forward(recording, event)
    wrong = event >= 0 and recording.events[event].to != expected
    events: list[Event] = []
    hows: list[str] = []
    reads: list[Read | None] = []
    while event >= 0:
        current = recording.events[event]
        followed = _followed_read(recording, event, expected)
        if followed is not None:
            events.append(current)
            hows.append("attribute")
            reads.append(followed)
            event = followed.event
            continue
        if current.how == "attribute" and wrong and (current.explicit or _unfollowed(recording, current, expected)):
            events.append(current)  # it named the dtype of its result, for any operands
            hows.append("cast")
            reads.append(None)
            break
        if current.how == "attribute":  # this read is not the cause
            event = current.parents[0] if current.parents else -1
            continue
        events.append(current)
        hows.append(_how(current))
        reads.append(None)
        if not current.parents:
            break
        if current.how == "form" and wrong and all(recording.events[p].to == expected for p in current.parents):
            break  # the precision is right; this event made it complex, or real
        event = next((p for p in current.parents if p >= 0 and recording.events[p].to != expected), current.parents[0])
    if not events:
        return None
    found = list(zip(reversed(events), reversed(hows), reversed(reads)))
    # a loop that reads in each round the dtype that the last round left: show its line once
    found = [
        f
        for n, f in enumerate(found)
        if not n or f[1] != "attribute" or (f[0].place, f[0].op) != (found[n - 1][0].place, found[n - 1][0].op)
    ]
    return Lineage(*zip(*found))


def written_before(recording: Recording, event: int) -> int:
    """The event that decided the dtype of what a load took from a file which this run had written; -1 where the run
    wrote no such tensors."""
    loaded = recording.events[event]
    read = (t for t in recording.transfers if t.kind == "read" and t.place == loaded.place and t.source == loaded.to)
    for t in read:
        same = (t.group, t.source, t.tensors, t.size, t.names)
        for w in recording.transfers:
            wrote = w.kind == "written" and (w.group, w.source, w.tensors, w.size, w.names) == same
            if wrote and 0 <= w.event < event and recording.events[w.event].how == "cast":
                return w.event
    return -1


_BY_ENGINE = "_to_copy"
"""The op of a cast that no call of the program's made."""


def _of_forward(recording: Recording, event: int) -> int:
    """The event itself; or, where the engine cast a gradient back to the dtype that a value had before the program cast
    or widened it, that of this value: a gradient has the dtype of what it is the gradient of."""
    made = recording.events[event] if event >= 0 else None
    if made is None or made.how != "cast" or made.op != _BY_ENGINE:
        return event
    casts = (op for op in recording.ops if op.phase == "backward" and op.of >= 0 and op.place == made.place)
    forward = (recording.ops[op.of] for op in casts if is_cast(op) and op.outputs[:1] == (made.to,))
    values = (i.event for op in forward for i in (op.inputs[:1] if is_cast(op) else op.inputs) if i.dtype == made.to)
    return next((number for number in values if 0 <= number < event), event)


def events_above(recording: Recording, event: int) -> set[int]:
    """The event's number and those of all events that its value came from."""
    return {*reached([event] * (event >= 0), lambda number: recording.events[number].parents)}


def reached(of: Iterable[_Node], following: Callable[[_Node], Iterable[_Node]]) -> Iterator[_Node]:
    """Some nodes and all that is reached from them, each once, the nearest first. ``following``: the next ones of one;
    it is asked after that one was given out."""
    waiting, found = deque(of), set[_Node]()
    while waiting:
        if (node := waiting.popleft()) not in found:
            found.add(node)
            yield node
            waiting.extend(following(node))


def _all_operands(op: Op) -> Iterable[Input]:
    return op.inputs


def ops_above(
    ops: Sequence[Op], of: Iterable[int], through: Callable[[Op], Iterable[Input]] = _all_operands, most: int = 1 << 30
) -> Iterator[int]:
    """The ops numbered ``of`` and those that their results were computed from, the nearest first, at most ``most``.

    through: the operands of an op that the search goes on to; it is asked after the op was given out.
    """
    known = lambda numbers: (number for number in numbers if 0 <= number < len(ops))
    return islice(reached(known(of), lambda number: known(i.producer for i in through(ops[number]))), most)


def first_operands(ops: Sequence[Op], number: int) -> Iterator[int]:
    """An op, the op that made its first operand, the one that made that one's, and so on."""
    seen = {-1}
    while number not in seen:
        seen.add(number)
        yield number
        number = ops[number].inputs[0].producer if ops[number].inputs else -1


def last_alone(recording: Recording, witness: Witness, root: int) -> int:
    """The op that made the last numbers which have their dtype from one event alone, before they met others, or in
    which a parameter of that event itself met them; -1 where that was not recorded."""
    ops, waiting, seen = recording.ops, deque([(witness.producer, witness.event)]), set[int]()
    by_weight = lambda n: any(i.event == root and i.holder == "parameter" for i in ops[n].inputs)
    while waiting:
        number, event = waiting.popleft()
        if 0 <= number < len(ops) and number not in seen:
            seen.add(number)
            if event == root:
                made = unmoved(ops, number)
                if made < 0 or ops[made].place == recording.events[root].place:
                    return made
                moved = takewhile(made.__ne__, first_operands(ops, number))
                return next(filter(by_weight, moved), made)
            if by_weight(number):
                return number
            waiting.extend((i.producer, i.event) for i in ops[number].inputs if i.dtype == witness.dtype)
    return -1


def unmoved(ops: Sequence[Op], number: int) -> int:
    """The op that made the numbers which an op only moves, or itself; -1 where it was not recorded."""
    return next((n for n in first_operands(ops, number) if not is_move(ops[n]) or not ops[n].inputs), -1)


def _how(event: Event) -> str:
    if event.how in ("cast", "autocast"):
        return event.how
    return "promotion" if event.how == "promotion" else "value"


def _followed_read(recording: Recording, number: int, expected: str | None) -> Read | None:
    event = recording.events[number]
    if event.how == "factory" and tagged(event.op, "like"):
        wrong = expected is not None and event.to != expected
        followed = (r for r in event.reads if r.event >= 0 and not (wrong and _chosen_wrongly(recording, r, expected)))
        return next(followed, None)
    if not event.reads or event.to == expected or _dequantises(event):
        return None
    if expected is not None and event.to == _most_of_the_run(recording):
        of_run = (
            r for r in event.reads if _meet(recording, number, r.event) or _widened_in_vain(recording, r, expected)
        )
        return next(of_run, None)
    followed = (r for r in event.reads if r.event >= 0)
    had_to = (r for r in followed if _meet(recording, number, r.event) or not _chosen_wrongly(recording, r, expected))
    return next(had_to, None)


def _dequantises(event: Event) -> bool:
    """Whether a cast turns codes into numbers: a scale has its dtype to be exact, not to say in which to compute."""
    return event.how == "cast" and bool(event.source) and {*event.source} <= STORAGE_ONLY | {"int8"}


def _meet(recording: Recording, event: int, other: int) -> bool:
    """Whether what two events decided meets in one operation, so that one of them had to follow the other. An
    optimizer's state meets the gradients in whichever dtype it has."""
    ops = (op for op in recording.ops if op.phase != "optimizer")
    return any({event, other} <= {i.event for i in op.inputs} for op in ops)


def _widened_in_vain(recording: Recording, read: Read, expected: str) -> bool:
    """Whether the program itself cast a tensor whose dtype was read from the expected dtype to a wider one, and nothing
    was computed in that: at most autocast cast it back."""
    made = recording.events[read.event] if read.event >= 0 else None
    if made is None or made.how != "cast" or not made.explicit or made.source != (expected,):
        return False
    taken = [op for op in recording.ops if any(i.event == read.event for i in op.inputs)]
    unused = all(is_move(op) or is_cast(op) and op.op not in NAMED_CASTS for op in taken)
    return wider(made.to, expected) and unused


def _unfollowed(recording: Recording, event: Event, expected: str | None) -> bool:
    """Whether a cast ``x.to(y.dtype)`` that changed nothing read the dtype of the wrong tensor."""
    return any(r.event >= 0 and _chosen_wrongly(recording, r, expected) for r in event.reads)


def _chosen_wrongly(recording: Recording, read: Read, expected: str | None) -> bool:
    """Whether the tensor that a dtype was read from has the right dtype, so that the mistake is the line that read it.

    - A counter should be an integer, even if another tensor is cast to its dtype.
    - A parameter was right when it was read, if it was cast to another dtype later.
    - A module's first parameter does not speak for the others, if it was left out when they were cast.
    - A tensor that was widened on its way by another one is as wrong as that one.
    - A library's line only passes on the dtype of what the program gave it.
    - Else a tensor that met only tensors of its own dtype, or is kept wide and was cast where it was used, is right.
    """
    if expected is None:
        return False
    if expected in FLOATING and read.dtype not in FLOATING:
        return True
    held = recording.events[read.event].how == "parameter" and recording.parameters
    if held and all(p.event != read.event for p in recording.parameters):
        return True  # its module was cast since
    if read.of_module and _left_out(recording, read, expected):
        return True
    if _widened(recording, read, expected) or _passed_on(recording, read):
        return False
    met, kept_wide = False, wider(read.dtype, expected)
    for op in recording.ops:
        if kept_wide and is_cast(op) and op.inputs and op.outputs[:1] == (expected,):
            met = met or op.inputs[0].event == read.event  # the program knows its dtype
        if len(op.inputs) < 2 or is_move(op) or is_cast(op) or all(i.event != read.event for i in op.inputs):
            continue
        rest = [
            i for i in op.inputs if i.shape and i.dtype in FLOATING and not _follows(recording, i.event, read.event)
        ]
        others = {i.dtype for i in rest}
        if others - {read.dtype}:
            return False
        met = met or bool(others)
    return met


def _left_out(recording: Recording, read: Read, expected: str) -> bool:
    """Whether the parameter whose dtype was read was there when most of its model was cast to the expected dtype, and
    kept its own: then it has it on purpose."""
    models = {p.name.partition(".")[0] for p in recording.parameters if p.event == read.event}
    beside = [p for p in recording.parameters if p.name.partition(".")[0] in models]
    cast_later = sum(p.size for p in beside if p.dtype == expected and p.event > read.event)
    return 2 * cast_later > sum(p.size for p in beside)


def _widened(recording: Recording, read: Read, expected: str) -> bool:
    """Whether a tensor whose dtype was read came from a value of the expected dtype that a wider one widened."""
    above = (recording.events[n] for n in events_above(recording, read.event))
    return any(e.how == "promotion" and e.to == read.dtype and expected in e.source for e in above)


def _passed_on(recording: Recording, read: Read) -> bool:
    """Whether a library's own line read the dtype of what the program's own line had made, or of what took it from
    there."""
    by = place_of(recording, read.place).stack[max(read.frames_up, 0) :]
    above = events_above(recording, read.event)
    taken = [n for a in above for r in recording.events[a].reads for n in events_above(recording, r.event)]
    roots = (recording.events[n] for n in (*above, *taken))
    made = (place_of(recording, e.place).stack for e in roots if not e.parents and e.to == read.dtype)
    return bool(by) and not by[0].user and any(stack[0].user for stack in made if stack)


def _follows(recording: Recording, event: int, other: int) -> bool:
    """Whether an event is another, or took its dtype from what that one made."""
    above = events_above(recording, event)
    return other in above or any(r.event == other for n in above for r in recording.events[n].reads)


def _most_of_the_run(recording: Recording) -> str | None:
    """The dtype that most numbers in the run's parameters had at the last refusal; None where nothing was refused, or
    no dtype has more than half."""
    sizes = dict(recording.refused[-1].run) if recording.refused else {}
    most = max(sizes, key=sizes.__getitem__, default=None)
    return most if most is not None and 2 * sizes[most] > sum(sizes.values()) else None


def origin(
    recording: Recording, event: int, expected: str | None = None, name: str | None = None, *, default: bool = True
) -> Origin:
    """The event that decided a dtype. See :func:`lineage` for ``expected``; ``name`` is used where the event has no
    name. default: of a default dtype that the program set, the line that set it; else, for what is no parameter, the
    call that took it."""
    line = lineage(recording, event, expected)
    if line is None:
        return Origin("input", name, None, NOWHERE)
    root = line.root
    if root.default >= 0 and (default or root.how == "parameter"):
        return Origin(root.how, root.name or name, "set_default_dtype", place_of(recording, root.default))
    if (told := _told(recording, root, expected)) is not None:
        return Origin(root.how, root.name or name, None, told, True)
    if (kept := _kept(recording, root)) is not None:
        return Origin("cast", root.name or name, kept.op, place_of(recording, kept.place), True)
    return Origin(
        {"form": "promotion", "attribute": "cast"}.get(root.how, root.how),
        root.name or name,
        root.op or None,
        place_of(recording, root.place),
        root.explicit,
    )


def _told(recording: Recording, root: Event, expected: str | None) -> Place | None:
    """The place of the literal by which NumPy was told the dtype of an array; None where there is none, or NumPy has
    no such dtype as is expected: then the array cannot change."""
    return place_of(recording, root.told) if root.told >= 0 and expected != "bfloat16" else None


def _kept(recording: Recording, root: Event) -> Unchanged | None:
    """The last cast of a module by which the program named the dtype that a parameter had by default: it decided to
    keep it."""
    if root.how != "parameter" or root.explicit:
        return None
    named = (u for u in reversed(recording.unchanged) if u.of_module and not u.reads and u.dtype == root.to)
    return next((u for u in named if u.event >= 0 and recording.events[u.event] is root), None)


def flow(recording: Recording, event: int, expected: str | None = None) -> tuple[FlowStep, ...]:
    """The steps from an origin on, the birth first. A promotion is a step; the flow begins at the operand with the
    wrong dtype."""
    line = lineage(recording, event, expected)
    if line is None:
        return ()
    found: list[FlowStep] = []
    for current, how, read in zip(line.events, line.hows, line.reads):
        place = place_of(recording, current.place)
        if current.default >= 0:
            found.append(
                FlowStep(place_of(recording, current.default), "set_default_dtype", "", "float32", current.to, "value")
            )
        if (kept := _kept(recording, current)) is not None:
            found.append(
                FlowStep(place_of(recording, kept.place), kept.op, kept.module, current.to, current.to, "cast")
            )
            continue
        if current.region >= 0:
            region = place_of(recording, current.region)
            found.append(FlowStep(region, "autocast", "", " + ".join(current.source), current.to, "autocast"))
        if (told := _told(recording, current, expected)) is not None:
            cast = current.source[0] if current.source else current.to
            said = f"NumPy is told {cast} here"
            found.append(FlowStep(told, "", "", cast, cast, "value", said=said))
            taken = f"{current.op}() takes the array in the dtype that it has, {current.to}"
            found.append(FlowStep(place, current.op, current.module, current.to, current.to, "value", said=taken))
            continue
        source = " + ".join(current.source) if current.source else current.to
        via = read.written if read is not None else ""
        tensor = _read_by_property(recording, read) if read is not None else ""
        found.append(FlowStep(place, current.op, current.module, source, current.to, how, via, read=tensor))
    return tuple(found)


def _read_by_property(recording: Recording, read: Read) -> str:
    """The name of the tensor whose dtype was read where the program's line does not name it; empty where it does."""
    return next(iter(recording.events[read.event].assigned), "") if read.frames_up else ""


def computes(recording: Recording, origin: Origin, dtype: str) -> bool:
    """Whether any op computed in the dtype that a cast decided; if none did, the cast was useless."""
    if origin.op not in NAMED_CASTS:
        return True  # softmax(dtype=torch.float32)
    roots = {
        n for n, s in enumerate(recording.events) if s.to == dtype and place_of(recording, s.place) == origin.place
    }
    roots |= {u.event for u in recording.unchanged if u.dtype == dtype and place_of(recording, u.place) == origin.place}
    return any(not (is_move(op) or is_cast(op)) and any(i.event in roots for i in op.inputs) for op in recording.ops)


def narrowed_elsewhere(recording: Recording, event: int, wanted: str) -> bool:
    """Whether something was computed in the dtype that an event decided, and the program cast another result of it to
    the wanted dtype: then it is wide on purpose."""
    taken = [
        op for op in recording.ops if op.phase in ("forward", "other") and any(i.event == event for i in op.inputs)
    ]
    casts = [op for op in taken if is_cast(op) and wanted in op.outputs and runs_own_line(recording, op)]
    sources = (unmoved(recording.ops, op.inputs[0].producer) for op in casts)
    cast = any(n < 0 or recording.ops[n].inputs for n in sources)  # what was only made is no result
    return cast and any(not (is_move(op) or is_cast(op)) for op in taken)


def runs_own_line(recording: Recording, op: Op) -> bool:
    """Whether the program's own line ran an op."""
    return any(frame.user for frame in place_of(recording, op.place).stack[:1])


def updated(recording: Recording, origin: Origin, dtype: str) -> bool:
    """Whether the result of a cast was changed in place before it became a parameter: an average, a sum."""
    roots = {
        n for n, s in enumerate(recording.events) if s.to == dtype and place_of(recording, s.place) == origin.place
    }
    return any(destination(o) == 0 and o.inputs[0].event in roots and o.inputs[0].holder is None for o in recording.ops)


def frozen_island(recording: Recording, producer: int, dtype: str) -> bool:
    """Whether a value comes from weights that were cast on purpose and got no gradient: a teacher or an encoder in half
    precision. Only in a run with a backward pass."""
    reached = {op.of for op in recording.ops if op.phase == "backward" and op.of >= 0}
    ahead, seen = [producer], {-1}
    while reached and ahead:
        number = ahead.pop()
        if number in seen:
            continue
        seen.add(number)
        inputs = [i for i in recording.ops[number].inputs if i.dtype == dtype]
        weights = [i for i in inputs if i.holder == "parameter" and i.event >= 0]
        if any(
            (root := lineage(recording, i.event)) and root.root.how == "cast" and root.root.explicit for i in weights
        ):
            return number not in reached
        ahead += [i.producer for i in inputs]
    return False


def keeps(recording: Recording, producer: int, event: int, wanted: str) -> bool:
    """Whether a value could be created as an integer or a boolean and stay one until its use: all ops between are moves
    or casts, or, for integers, return integers for integers."""
    roots = events_above(recording, event)
    way = upstream(recording, producer, roots)
    return all(
        is_move(op)
        or is_cast(op)
        or wanted != "bool"
        and tagged(op.op.strip("_"), "count")
        or all(i.event not in roots for i in op.inputs)
        for op in (recording.ops[n] for n in way)
    )


def chain(recording: Recording, name: str, dtype: str, event: int) -> Chain:
    return Chain(name, dtype, origin(recording, event, None, name), flow(recording, event))


def why(recording: Recording, name: str) -> tuple[Chain, ...]:
    """How the dtypes of a module (its parameters, buffers and inputs), of one parameter, of a variable on the line that
    gave a tensor its dtype, or of what a line (``train.py:12``) made were decided.

    The first parts of a module's name may be left out. For a module that only has submodules, the answer is their
    parameters. Raises UnknownNameError where no such name was seen.
    """
    if not name:
        raise UnknownNameError(f"no name was given{near(recording, name)}")
    found = [*_parameter_chains(recording, name), *_input_chains(recording, name)]
    if not found:
        found = list(_parameter_chains(recording, name, below=True))
    if not found:
        events = recording.events
        found = [chain(recording, name, events[born].to, born) for born in births(recording, name)]
    if not found:
        raise UnknownNameError(f"nothing called {name!r} was recorded{near(recording, name)}")
    return tuple(found)


def births(recording: Recording, name: str) -> Iterator[int]:
    """The events at which tensors got their dtype from no other tensor, on a line that gave them this name, or on this
    line (``train.py:12``)."""
    file, colon, line = name.rpartition(":")
    for number, event in enumerate(recording.events):
        if event.parents:
            continue
        if colon and line.isdigit():
            stack = place_of(recording, event.place).stack
            if any(f.line == int(line) and f.user and f.file.endswith(file) for f in stack):
                yield number
        elif name == event.name or name in event.assigned:
            yield number


def module_names(recording: Recording) -> set[str]:
    """The full names of all modules that ran or hold parameters."""
    parts = [p.name.split(".") for p in recording.parameters]
    return {".".join(path[:n]) for path in parts for n in range(1, len(path))} | set(recording.modules) - {""}


def near(recording: Recording, name: str) -> str:
    """What to add to a message about a name that was not recorded."""
    variables = {variable for event in recording.events if event.to in FLOATING for variable in event.assigned}
    known = module_names(recording) | {p.name for p in recording.parameters} | variables
    found = difflib.get_close_matches(name, sorted(known), 3)
    if found:
        return f"; did you mean {seen(', '.join(found))}?"
    return ". Give a module, a parameter or a variable by its name, or a line: train.py:12"


def _is_named(full: str, name: str) -> bool:
    return full == name or full.endswith("." + name)


def _parameter_chains(recording: Recording, name: str, *, below: bool = False) -> Iterator[Chain]:
    """Chains of the parameter of this name, or of the parameters that the module of this name holds itself; with
    ``below``, also those of its submodules."""
    for p in recording.parameters:
        parts = p.name.split(".")
        owners = [".".join(parts[:n]) for n in range(1, len(parts))] if below else [p.name.rpartition(".")[0]]
        if p.event >= 0 and any(_is_named(full, name) for full in (p.name, *owners)):
            yield chain(recording, p.name, p.dtype, p.event)


def _input_chains(recording: Recording, name: str) -> Iterator[Chain]:
    """Chains of the floating tensors that came into a module from outside; those in refused calls come last."""
    inside = {number for number, op in enumerate(recording.ops) if _is_named(op.module, name)}
    refused = (r for r in recording.refused if _is_named(r.module, name))
    ops = [recording.ops[number] for number in sorted(inside)]
    taken = [(f"input of {name}{', backward' if op.phase == 'backward' else ''}", i) for op in ops for i in op.inputs]
    offered = [(f"input of {name}, refused", w) for r in refused for w in r.witnesses]
    known = {p.event for p in recording.parameters}
    seen: set[int] = set()
    candidates: list[tuple[str, Input | Witness]] = [*taken, *offered]
    for label, operand in candidates:
        own = operand.producer in inside or operand.holder is not None or operand.event < 0
        as_parameter = isinstance(operand, Input) and operand.event in known
        if not own and not as_parameter and operand.dtype in FLOATING and operand.event not in seen:
            seen.add(operand.event)
            yield chain(recording, label, operand.dtype, operand.event)


def upstream(recording: Recording, op: int, roots: Collection[int]) -> list[int]:
    """The ops that a value went through, the last one first, along operands with the given events."""
    way: list[int] = []
    while op >= 0 and op not in way:
        way.append(op)
        op = next((i.producer for i in recording.ops[op].inputs if i.event in roots), -1)
    return way


# ---------------------------------------------------------------- the graph


def build(recording: Recording) -> nx.MultiDiGraph:
    """The flow graph: a node for each distinct op and each origin, an edge for each operand.

    Nodes are ``("op", index)`` with phase, module, op, aten, place, count and outputs (dtypes), and ``("origin",
    event)`` with kind, dtype, place and name; places are numbers into ``recording.places``. Edges carry ``dtype`` and
    ``operand`` (the operand's index).

    >>> build(Recording()).number_of_nodes()
    0
    """
    import networkx as nx  # takes a tenth of a second, and it is needed only where it is asked for

    graph = nx.MultiDiGraph()
    for number, op in enumerate(recording.ops):
        graph.add_node(
            ("op", number), phase=op.phase, module=op.module, op=op.op, aten=op.aten, place=op.place, count=op.count,
            outputs=op.outputs,
        )  # fmt: skip
    for number, op in enumerate(recording.ops):
        for index, operand in enumerate(op.inputs):
            if operand.producer >= 0:
                graph.add_edge(("op", operand.producer), ("op", number), dtype=operand.dtype, operand=index)
            elif operand.event >= 0:
                event = recording.events[operand.event]
                node = ("origin", operand.event)
                if node not in graph:
                    graph.add_node(node, kind=event.how, dtype=event.to, place=event.place, name=event.name)
                graph.add_edge(node, ("op", number), dtype=operand.dtype, operand=index)
    return graph


def module_below(known: frozenset[str], around: str, path: str) -> str:
    """A module in or below another one, by the end of its path, which may begin with a local variable of a compiled
    function; the one around where that is not clear.

    >>> module_below(frozenset({"m.layers.0.mlp", "m.layers.1.mlp"}), "m", "stack.1.mlp")
    'm.layers.1.mlp'
    """
    parts = path.split(".")
    inside = [name for name in known if name.startswith(f"{around}." if around else "")]
    for begin in range(len(parts)):
        ending = "." + ".".join(parts[begin:])
        found = [name for name in inside if f".{name}".endswith(ending)]
        if found:
            return found[0] if len(found) == 1 else around
    return around
