"""Who is to blame for numbers that an op damaged: the op itself, or the birth of the dtype in which it computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from .. import graph
from ..records import FORWARD, FlowStep, Frame, Op, Operand, Origin, Place
from ..source import regions
from ..tables.dtypes import FLOATING, NARROW, REAL, wider
from ..tables.operators import COMPILED, NAMED_CASTS, destination, is_cast, tagged, writes
from .run_facts import Run


def narrows(op: Op) -> bool:
    """Whether an op makes a narrower dtype than one that it takes."""
    made = op.outputs[0] if op.outputs else ""
    return made in REAL and any(wider(i.dtype, made) for i in op.inputs if i.dtype in REAL)


def event_born(run: Run, number: int, dtype: str) -> int:
    """The event that decided the dtype in which an op computes: that of its model's weights, else of its result."""
    op = run.ops[number]
    weights = -1 if narrows(op) and op.phase in FORWARD else run.event_of_weights(op, dtype)
    return weights if weights >= 0 else of_rounded(run, number, event_of_output(run, number))


def of_rounded(run: Run, number: int, event: int) -> int:
    """The event that decided a dtype in which an op computes: where a call made numbers that it did not round, such as
    small integers, the cast of another operand from which it took its dtype, if that rounded numbers. A model's dtype
    is right for its weights."""
    taken = next((r.event for r in run.recording.events[event].reads), -1) if event >= 0 else -1
    if taken < 0 or run.recording.events[taken].how != "cast" or taken in run.events_of_weights:
        return event
    made, cast = _made_by(run, event), _made_by(run, taken)
    follows = bool(made) and all(map(run.exact, made)) and not any(map(run.exact, cast))
    return taken if follows and run.measured_above(number).intersection(cast) else event


def _made_by(run: Run, event: int) -> list[int]:
    """The casts and sequences of an event."""
    made = run.recording.events[event]
    makes = lambda op: op.place == made.place and op.outputs[:1] == (made.to,)
    return [n for n, op in enumerate(run.ops) if makes(op) and (is_cast(op) or tagged(op, "sequence"))]


def event_of_output(run: Run, number: int) -> int:
    """The event that decided the dtype of an op's result: from an op that used it, else from its own place or
    operand. A gradient that the engine casts gets the dtype of the value that was cast in forward."""
    op = run.ops[number]
    made = op.outputs[0] if op.outputs else ""
    forward = run.ops[op.of] if op.phase == "backward" and op.of >= 0 and is_cast(op) else None
    given = next((i.event for i in forward.inputs if i.dtype == made and i.event >= 0), -1) if forward else -1
    if given >= 0:
        return given
    takers = run.taken(number)
    taken = next((i.event for i in takers if i.dtype == made and i.event >= 0), -1)
    if taken >= 0:
        return taken
    here = next((n for n, s in enumerate(run.recording.events) if s.place == op.place and s.to == made), -1)
    if here >= 0:
        return here
    return next((i.event for i in sorted(op.inputs, key=lambda i: i.holder is None) if i.dtype == made), -1)


def made_operand(run: Run, op: Op, dtype: str, event: int) -> Operand:
    """An op's result. If a value was cast to a dtype that is right there, that cast is where it left its range."""
    held = [p.name for p in run.recording.parameters if p.event == event >= 0]
    origin = run.origin(event, run.dominant(op), held[0] if len(held) == 1 else None)
    return Operand(0, f"result of {op.op}", dtype, (), "", "gradient" if op.phase == "backward" else None, origin)


@dataclass(frozen=True, slots=True)
class Damaged:
    """An op whose result lost numbers in a dtype."""

    run: Run
    number: int
    dtype: str
    """That of its result, or of an operand that had been rounded before."""
    event: int
    """What decided that dtype."""
    rounded: bool = False
    """Whether numbers were rounded, and did not leave the dtype's range."""
    carried: bool = False
    """Whether the result is computed from that of the call before: a state that is carried on."""
    grows: bool = False
    """Whether it adds up numbers to much larger ones."""

    @property
    def op(self) -> Op:
        return self.run.ops[self.number]


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the dtype was decided in which numbers were lost."""

    culprit: Operand
    begins: tuple[FlowStep, ...]
    """The way from there to the op."""
    event: int = -1
    """The birth, -1 where the op is the place to change, or gave wider numbers up."""
    itself: bool = False
    """Whether the op is the place to change, and not the birth of its dtype."""


def decided(damaged: Damaged) -> Decision:
    """Where the dtype was decided: what the first principle says that applies."""
    return next(found for principle in _PRINCIPLES if (found := principle(damaged)) is not None)


def _unscaled(d: Damaged) -> Decision | None:
    """The autocast region that decided what a backward op computes in, if it did. Then no cast of the program's is at
    fault: the region needs a loss scaler, or another dtype."""
    run, made = d.run, _born(d).culprit
    forward = run.ops[d.op.of] if d.op.phase == "backward" and d.op.of >= 0 else None
    if forward is None or made.origin.kind not in ("cast", "autocast") or d.op.outputs[0] not in run.autocasts:
        return None
    text = run.recording.text
    region = regions.statement(text, run.place(forward)) or regions.statement(text, made.origin.place)
    if region is None:
        return None
    step = FlowStep(region, "autocast", "", "float32", d.dtype, "autocast")
    return Decision(replace(made, origin=Origin("autocast", None, "autocast", region, True)), (step,))


def _given_up(d: Damaged) -> Decision | None:
    """The op itself is a cast by a line of the program of what it had computed in a wider dtype: whichever tensor's
    dtype it follows, here the wider numbers were given up. The dtype of a state, which is carried on or written into,
    was decided with its first one."""
    of_state = d.carried or any(writes(d.run.ops[user]) for user in d.run.users[d.number])
    by_choice = d.rounded and not of_state and (given_up(d.run, d.number) or _merges_integers(d))
    return _at_cast(d, d.op, -1) if by_choice else None


def _merges_integers(d: Damaged) -> bool:
    """Whether a line of the program casts integers to a dtype that does not hold them all."""
    given = d.op.inputs[0].dtype if is_cast(d.op) and d.op.inputs else ""
    return given in _LARGE and d.dtype in d.op.outputs and graph.runs_own_line(d.run.recording, d.op)


_LARGE = "int32", "int64"


def _cast_for_it(d: Damaged) -> Decision | None:
    """The function that runs the op cast all of its operands in that dtype for it, and computed nothing in between. In
    what an op writes into, the dtype was decided before."""
    if d.carried or writes(d.op) or d.op.phase not in FORWARD:
        return None
    taken = [i for i in d.op.inputs if i.dtype == d.dtype]
    made = [graph.unmoved(d.run.ops, i.producer) for i in taken]
    casts = [d.run.ops[n] for n in made if n >= 0 and _casts(d, d.run.ops[n])]
    if casts and d.event == of_rounded(d.run, d.number, taken[0].event) != taken[0].event:
        return _born(d)
    if casts and (state := _state_of(d.run, taken[0].event)) >= 0:
        return _born(replace(d, event=state))
    return _at_cast(d, casts[0], taken[0].event) if casts and len(casts) == len(made) else None


def _state_of(run: Run, event: int) -> int:
    """The event of the tensor whose dtype a cast took, where the program keeps it, and it is no weight: what is cast to
    it is stored there; -1 for none."""
    read = {r.event for r in run.recording.events[event].reads} - run.events_of_weights if event >= 0 else set()
    stores = (op.inputs[destination(op)].event for op in run.ops if writes(op)) if read else ()
    return next((e for e in stores if e in read), -1)


def _casts(d: Damaged, cast: Op) -> bool:
    narrowed = is_cast(cast) and cast.op in NAMED_CASTS and not wider(d.dtype, cast.inputs[0].dtype)
    return narrowed and not d.run.weight_of(cast.inputs[0]) and _function(d.run, cast) == _function(d.run, d.op)


def _named_operand(d: Damaged) -> Decision | None:
    """The larger operand of a sum in float32, where the program named that dtype and the other has it by default: made
    float64, it makes the sum float64."""
    run, op = d.run, d.op
    if d.dtype != "float32" or not d.rounded or d.carried or op.phase not in FORWARD or not tagged(op, "sum"):
        return None
    named = [i for i in op.inputs if i.event >= 0 and run.recording.events[i.event].explicit]
    if len(op.inputs) != 2 or len(named) != 1 or named[0].event in run.events_of_weights:
        return None
    other = next(i for i in op.inputs if i is not named[0])
    if run.peaks.get(other.producer, inf) > _LITTLE * run.peaks.get(d.number, 0.0) or named[0].dtype != d.dtype:
        return None
    made = made_operand(run, op, d.dtype, named[0].event)
    return Decision(made, flow_to(run, op, named[0].event, run.place(op)), named[0].event)


_LITTLE = 0.5
"""The part of a sum that comes from its smaller operand, at most."""


def _as_configured(d: Damaged) -> Decision | None:
    """The program computes there in the dtype of its weights or of an autocast region, and what goes into the op fits:
    a square in a norm, an epsilon, a scaled loss. Weights that meet activations are no such op; nor is one that only
    rounds, where the program cannot keep it out of that dtype."""
    run, op = d.run, d.op
    taken = [i for i in op.inputs if i.dtype in REAL]
    by_weight = d.dtype in NARROW and len(taken) > 1 and any(run.weight_of(i) for i in taken)
    if is_cast(op) or narrows(op) or by_weight or not _can_be_kept_out(d):
        return None
    configured = op.module and run.computes_in(d.number) or run.dominant(op)  # a loss has no weights
    with_model = {i.event for i in op.inputs if i.dtype == d.dtype} & run.events_of_weights
    return _itself(d) if configured == d.dtype or with_model or by_autocast(run, op, d.dtype) else None


def _adds_up(d: Damaged) -> Decision | None:
    """A running sum rounds what it adds to whole numbers of it, whatever dtype suits those; but who cast them, and then
    called for the sum, chose its dtype."""
    born = d.run.origin(d.event, None)
    cast = born.kind == "cast" and {_named(f) for f in born.place.stack[:1]} <= {*map(_named, d.run.place(d.op).stack)}
    return _itself(d) if d.grows and not cast and _can_be_kept_out(d) else None


def _counted(d: Damaged) -> Decision | None:
    """A sum of what a line of the program cast from booleans or integers: that line made floating numbers of what is
    counted, whichever tensor's dtype they got."""
    if d.carried or d.op.phase not in FORWARD or not tagged(d.op, "total", "running") or len(d.op.inputs) != 1:
        return None
    made = graph.unmoved(d.run.ops, d.op.inputs[0].producer)
    cast = d.run.ops[made] if made >= 0 else d.op
    counts = is_cast(cast) and cast.op in NAMED_CASTS and cast.inputs[0].dtype not in REAL
    own = counts and d.dtype in cast.outputs and graph.runs_own_line(d.run.recording, cast)
    return _at_cast(d, cast, d.op.inputs[0].event) if own else None


def _follows_another(d: Damaged) -> Decision | None:
    """A line of the program casts wider numbers to the dtype of a tensor from which they do not come, and whose range
    they leave: the other's numbers may fit, and only this line gives their dtype to these."""
    event = d.run.recording.events[d.event] if d.event >= 0 and not d.rounded else None
    if event is None or event.place != d.op.place or not (is_cast(d.op) and d.op.op in NAMED_CASTS and narrows(d.op)):
        return None
    followed, ops = {r.event for r in event.reads}, d.run.ops
    above = graph.reached([d.number], lambda n: (i.producer for i in ops[n].inputs if i.producer >= 0))
    other = bool(followed) and not any(i.event in followed for n in above for i in ops[n].inputs)
    return _at_cast(d, d.op, d.event) if other and graph.runs_own_line(d.run.recording, d.op) else None


def _wider_elsewhere(d: Damaged) -> Decision | None:
    """The op itself, where the program widens the same narrow numbers elsewhere for the same operator: both ways share
    what was rounded before, and this one alone rounds once more. Arithmetic is met everywhere."""
    if not d.rounded or d.carried or d.op.phase not in FORWARD or d.event in d.run.events_of_weights:
        return None
    if is_cast(d.op) or tagged(d.op, "sum", "scale", "product"):
        return None
    born = lambda event: d.run.origin(event, None).place.stack[:1] if event >= 0 else ()
    narrow = lambda i: i.dtype == d.dtype and born(i.event) == born(d.event)
    if d.event < 0 or not any(map(narrow, d.op.inputs)) or not graph.runs_own_line(d.run.recording, d.op):
        return None
    for n, cast in enumerate(d.run.ops):
        if is_cast(cast) and cast.op in NAMED_CASTS and narrow(cast.inputs[0]) and wider(cast.outputs[0], d.dtype):
            below = d.run.below([n], d.run.moves)
            if any(d.run.ops[user].op == d.op.op for user, _ in below):
                return _itself(d)
    return None


def _taken_by_default(d: Damaged) -> Decision | None:
    """What a line of the program made in the dtype that another tensor had by default: nobody chose that dtype, and
    only this line knows which numbers it makes. A sum into it is the other's as well."""
    event = d.run.recording.events[d.event] if d.event >= 0 and not (d.carried or writes(d.op)) else None
    if event is None or event.how not in ("factory", "conversion") or not event.reads:
        return None
    place, born = graph.place_of(d.run.recording, event.place), _born(d)
    if born.culprit.origin.explicit or not (place.stack and place.stack[0].user):
        return None
    own = Origin(event.how, None, event.op, place, True)
    steps = tuple(step for step in born.begins if step.place == place)
    return replace(born, culprit=replace(born.culprit, origin=own), begins=steps)


def _born(d: Damaged) -> Decision:
    """The birth of the dtype."""
    site = d.run.place(d.op)
    return Decision(made_operand(d.run, d.op, d.dtype, d.event), flow_to(d.run, d.op, d.event, site), d.event)


_PRINCIPLES = (
    _unscaled,
    _given_up,
    _wider_elsewhere,
    _cast_for_it,
    _named_operand,
    _as_configured,
    _adds_up,
    _counted,
    _follows_another,
    _taken_by_default,
    _born,
)


def given_up(run: Run, number: int) -> bool:
    """Whether a line of the program casts what it had computed in a wider dtype, or had made in one that it named."""
    op = run.ops[number]
    if not (is_cast(op) and op.inputs and op.inputs[0].dtype in REAL and narrows(op)):
        return False
    event = op.inputs[0].event
    chosen = event >= 0 and run.recording.events[event].explicit
    return (chosen or run.computed(op.inputs[0])) and graph.runs_own_line(run.recording, op)


def _at_cast(d: Damaged, cast: Op, event: int) -> Decision:
    place = d.run.place(cast)
    step = FlowStep(place, cast.op, cast.module, cast.inputs[0].dtype, d.dtype, "cast")
    origin = Origin("cast", None, cast.op, place, True)
    return Decision(replace(_born(d).culprit, origin=origin), (step,), event)


def _itself(d: Damaged) -> Decision:
    origin = Origin("factory", None, d.op.op, d.run.place(d.op))
    return Decision(replace(_born(d).culprit, origin=origin), (), itself=True)


def _can_be_kept_out(d: Damaged) -> bool:
    """Whether the op made the damaged numbers in forward, and a program can keep it out of its dtype: those that leave
    the range in any case, those that round on a line of the program's own, or in an autocast region. A compiled region
    is no such op: what it makes has the dtype of its weights and inputs."""
    if d.op.aten == COMPILED:
        return False
    own = by_autocast(d.run, d.op, d.dtype) or graph.runs_own_line(d.run.recording, d.op)
    return d.op.phase in FORWARD and (d.dtype in d.op.outputs or _compares(d.op)) and (own or not d.rounded)


def _compares(op: Op) -> bool:
    return op.outputs[:1] == ("bool",)


def _function(run: Run, op: Op) -> list[tuple[str, str]]:
    return [_named(frame) for frame in run.place(op).stack[:1]]


def _named(frame: Frame) -> tuple[str, str]:
    return frame.file, frame.function


def by_autocast(run: Run, op: Op, dtype: str) -> bool:
    """Whether an autocast region decided the dtype in which an op computes: it runs there, or takes what was computed
    there."""
    if op.autocast.rpartition(":")[2] == dtype:
        return True
    events = (i.event for i in op.inputs if i.dtype == dtype and i.event >= 0)
    return any(run.origin(event, dtype).kind == "autocast" for event in events)


def flow_to(run: Run, op: Op, event: int, site: Place) -> tuple[FlowStep, ...]:
    """The way of an op's dtype from its birth to where it does harm, without that."""
    steps = graph.flow(run.recording, event, run.dominant(op))
    known = (s for s in steps if s.place.stack and s.to in FLOATING)
    return tuple(s for s in known if s.place.stack[:1] != site.stack[:1])
