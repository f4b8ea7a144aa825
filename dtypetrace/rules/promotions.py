"""Silent promotions (DT201): one wider operand widened a stream of lower precision; with its reach.

An op is a promotion where its result has the dtype of a wide operand and is wider than another operand with dimensions,
and wider than what the model computes in. What was made from the result ran wide because of that operand, until
something else would have made it wide anyway: an explicit cast of the stream, but none to the dtype of what is wide
because of that operand; or a matmul whose own weight is wide. So the reach is what would have run in the lower dtype if
the operand had been narrow.

It is a warning where the harm goes beyond the op: matmuls or convolutions ran wide, or the wide stream went on through
other modules, or it is float64 without the program asking for it. It is a note where the width was chosen, by an
explicit cast of the stream itself, or where it ends at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from .. import graph
from ..records import FORWARD, Finding, Fix, Input, Op, Operand, Place, Reach
from ..source import editing
from ..tables.dtypes import REAL, narrower, wider
from ..tables.english import quoted
from ..tables.operators import COMPILED, destination, flops, is_cast, is_move, tagged, writes
from . import dataflow_paths
from .advice import advise
from .at_use import birth_words
from .case import cast_words, short
from .run_facts import Run, quantity, reach_of
from .silent_findings import found_at

_FAR = 3
"""A wide stream does not end at once if it goes through this many ops of arithmetic, and into another module."""
_MUCH = 0.2
"""Two ops are enough if at least this share of the model's arithmetic, by result size, ran wide."""


_At = tuple[int, Input]
"""An operand and its index."""
_Key = tuple[object, ...]
"""The key of a cause: the line of the birth and the dtype that was made."""


@dataclass
class _Cause:
    """One wide operand's birth, and what it widened."""

    op: int
    operand: int
    expected: str
    chosen: bool
    """Whether everything wide comes from an explicit cast of the stream itself, or from autocast."""
    kept: bool
    """Whether the stream is wide on purpose under autocast: it comes from wide weights, or what it meets is narrow only
    because autocast cast for one call."""
    calls: int = 0
    ran: dict[int, int] = field(default_factory=dict)
    """What ran wide because of it -> after how many calls of arithmetic, judged from first occurrences."""
    left: bool = False
    """Whether it went on into another module of the model."""
    ends: int = -1


def find(run: Run) -> list[Finding]:
    """One finding for each birth of a wide operand that widened anything."""
    causes = _Walk(run).causes
    return [f for f in (_finding(run, c) for c in causes.values()) if f is not None]


class _Walk:
    """Follows the ops in the order of their first occurrence; producers come before their consumers."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.causes: dict[_Key, _Cause] = {}
        self.because: dict[int, dict[_Key, tuple[int, str]]] = {}
        """For each op that ran wide because of something: the causes, each with its distance and the module it came
        from."""
        self.islands: set[int] = set()
        """Ops whose result is wide because the stream itself was cast, on purpose or by autocast."""
        self.computes: set[str] = set()
        """The dtypes in which the program computes on its own."""
        for number, op in enumerate(run.ops):
            if op.aten == COMPILED:  # which of its operands meet inside was not seen
                self.islands.add(number)
            elif op.phase == "backward":
                self._backward(number, op)
            elif op.phase in FORWARD and op.outputs and op.outputs[0] in REAL:
                self._forward(number, op)
                if number not in self.because and _computes(op):
                    self.computes.add(op.outputs[0])

    def _backward(self, number: int, op: Op) -> None:
        for key in self.because.get(op.of, ()):
            if any(i.dtype == self.run.ops[op.of].outputs[0] for i in op.inputs):
                self.causes[key].ran[number] = 0

    def _forward(self, number: int, op: Op) -> None:
        made = op.outputs[0]
        operands = [(index, i) for index, i in enumerate(op.inputs) if i.dtype in REAL and i.shape]
        held = [(index, i) for index, i in operands if i.dtype == made]
        low = [i for _, i in operands if narrower(i.dtype, made)]
        self._ends(number, [i for _, i in operands if wider(i.dtype, made)])
        if writes(op):  # the destination keeps its dtype
            self._goes_on(number, op, [(index, i) for index, i in held if index == destination(op)])
        elif not is_cast(op) and (low and held or len({i.dtype for i in low}) > 1):
            self._widens(number, op, held, operands)
        elif held:
            self._goes_on(number, op, held)
        elif low and (wide := self._cast_like(number)):
            self._ran(number, op, wide, 0)  # `q.to(k.dtype)` follows what made k wide
        elif low and self.run.computed(low[0]):
            self.islands.add(number)  # cast, or asked to widen: dtype=torch.float32 of a softmax or a sum

    def _cast_like(self, number: int) -> list[Input]:
        """The widened tensors whose dtype a cast of another tensor read."""
        event = self.run.event_of(number) if is_cast(self.run.ops[number]) else -1
        reads = self.run.recording.events[event].reads if event >= 0 else ()
        return [Input(r.dtype, r.event, r.producer) for r in reads if r.producer in self.because]

    def _ends(self, number: int, narrowed: list[Input]) -> None:
        """Records the first op that narrows a wide stream again."""
        for i in narrowed:
            for key in self.because.get(i.producer, ()):
                cause = self.causes[key]
                cause.ends = number if cause.ends < 0 else cause.ends

    def _goes_on(self, number: int, op: Op, held: list[_At]) -> None:
        """An op on wide operands only: it is wide because of a cause, unless something else would have made it wide
        anyway."""
        caused = [i for _, i in held if i.producer in self.because]
        others = [i for _, i in held if i.producer not in self.because]
        by_weight = bool(flops(op)) and any(self.run.weight_of(i) for i in others)
        if by_weight or any(i.producer in self.islands for i in others):
            self.islands.add(number)
        elif caused:
            self._ran(number, op, caused, 0 if (is_move(op) or is_cast(op)) else 1)

    def _ran(self, number: int, op: Op, caused: list[Input], further: int) -> None:
        mine = self.because.setdefault(number, {})
        for i in caused:
            before = self.run.ops[i.producer]
            same_call = (before.op, before.place, before.module) == (
                op.op,
                op.place,
                op.module,
            )  # a dropout is four ops and one call
            for key, (depth, module) in self.because[i.producer].items():
                away = depth if same_call else depth + further
                if key not in mine or mine[key][0] < away:
                    mine[key] = away, module
        for key, (depth, module) in mine.items():
            cause = self.causes[key]
            cause.ran[number] = depth
            cause.left |= depth > 0 and op.module != module and self.run.holds(op.module)

    def _widens(self, number: int, op: Op, held: list[_At], operands: list[_At]) -> None:
        """An op on narrow and wide operands: a new cause, the reach of an old one, or a part of an island."""
        made = op.outputs[0]
        caused = [i for _, i in held if i.producer in self.because]
        new = [(index, i) for index, i in held if i.producer not in self.because]
        chosen = [(index, i) for index, i in new if i.producer in self.islands]
        narrow = [i for _, i in operands if i.dtype != made]
        if chosen and len(chosen) == len(new) and (caused or not any(self.run.computed(i) for i in narrow)):
            # a table or weight joins a stream that was widened on purpose: no other stream is widened
            self.islands.add(number)
        elif caused and not chosen:
            self._ran(number, op, caused, 1)
        else:
            expected = self.run.dominant(op) or self._chosen(op)
            if expected is not None and wider(made, expected) and any(self._stream(i, held) for i in narrow):
                others = [at for at in new if at not in chosen]
                pool = others or new or [(n, i) for n, i in operands if i.dtype != expected]
                self._cause(number, op, pool, expected, bool(chosen) and not others)

    def _cause(self, number: int, op: Op, pool: list[_At], expected: str, chosen: bool) -> None:
        """Records that one of several wide operands widened an op; operands held by a module are named first."""
        index, operand = next(((n, i) for n, i in pool if i.holder), pool[0])
        origin = self.run.origin(operand.event, expected)
        key = origin.place.stack[:1] or (operand.event,), op.outputs[0]
        if key not in self.causes:
            kept = bool(op.autocast) and (origin.kind == "parameter" or self._narrowed_by_autocast(op))
            self.causes[key] = _Cause(number, index, expected, chosen or origin.kind == "autocast", kept)
        cause = self.causes[key]
        cause.calls += op.count
        cause.ran[number] = 0
        self.because.setdefault(number, {})[key] = 0, op.module

    def _narrowed_by_autocast(self, op: Op) -> bool:
        """Whether all narrow operands are autocast's: without it, everything would be as wide as the stream."""
        low = [i for i in op.inputs if i.dtype in REAL and narrower(i.dtype, op.outputs[0])]
        return bool(low) and all(self.run.origin(i.event, None).kind == "autocast" for i in low)

    def _stream(self, low: Input, held: list[_At]) -> bool:
        """Whether a narrow operand is data or a weight, not a constant that is combined with a wide table."""
        return (
            low.holder is not None
            or self.run.computed(low)
            or prod(low.shape) >= max((prod(i.shape) for _, i in held), default=0)
        )

    def _chosen(self, op: Op) -> str | None:
        """Where nothing has parameters: the low dtype, if it was chosen on purpose, and the wide one comes from a
        default and nothing else is computed in it: what is kept narrow where all else is wide makes no such stream."""
        made, events = op.outputs[0], self.run.recording.events
        roots = {
            i.dtype: self.run.origin(i.event, None) for i in op.inputs if i.event >= 0 and i.dtype in REAL and i.shape
        }
        low = [d for d, o in roots.items() if d != made and o.explicit]
        wide = roots.get(made)
        by_default = wide is not None and not wide.explicit and made not in self.computes
        return low[0] if events and low and by_default else None


def _computes(op: Op) -> bool:
    return not (is_move(op) or is_cast(op)) and any(i.dtype in REAL for i in op.inputs)


def _finding(run: Run, cause: _Cause) -> Finding | None:
    op = run.ops[cause.op]
    made, place = op.outputs[0], run.place(op)
    operands = tuple(run.operand(op, n, cause.expected) for n, i in enumerate(op.inputs) if i.dtype in REAL)
    culprit = next(o for o in operands if o.index == cause.operand)
    ran = [run.ops[n] for n in cause.ran]
    reach = reach_of(ran)
    serious = _serious(run, cause, culprit, reach)
    # an island that ends at once, or an average
    if not serious and (cause.kept or cause.chosen and _deepest(run, cause) < _FAR or _accumulates(run, cause)):
        return None
    steps = graph.flow(run.recording, op.inputs[cause.operand].event, cause.expected)
    low = next((i.dtype for i in op.inputs if i.dtype in REAL and i.dtype != made), cause.expected)
    return found_at(
        run,
        op,
        "DT201",
        culprit,
        _fix(run, cause, culprit, place),
        begins=steps,
        source=f"{low} + {culprit.dtype}",
        how="promotion",
        severity="warning" if serious else "note",
        operands=operands,
        count=cause.calls,
        notes=_notes(run, cause, culprit, reach, serious),
        reach=reach,
    )


def _serious(run: Run, cause: _Cause, culprit: Operand, reach: Reach) -> bool:
    """Whether the harm goes beyond the op: a matmul ran wide, it is float64 by accident, or it went on through other
    modules."""
    op = run.ops[cause.op]
    ran = [run.ops[n] for n in cause.ran]
    unasked = op.outputs[0] == "float64" and not culprit.origin.explicit and len(ran) > 1
    if reach.flops or unasked:
        return True
    deepest = _deepest(run, cause)
    much = deepest >= _FAR or deepest == _FAR - 1 and _share(run, ran, op.module) >= _MUCH
    return cause.left and much and not (cause.chosen or cause.kept)


def _deepest(run: Run, cause: _Cause) -> int:
    """After how many calls of arithmetic the wide stream ends. A loop over layers is one distinct op with a count."""
    return max(depth * max(run.ops[n].count // cause.calls, 1) for n, depth in cause.ran.items())


def _accumulates(run: Run, cause: _Cause) -> bool:
    """Whether what was widened is added to the wide operand itself."""
    wide = run.ops[cause.op].inputs[cause.operand]

    def itself(i: Input) -> bool:
        return (i.event, i.dtype, i.shape) == (wide.event, wide.dtype, wide.shape)

    into = ((o, destination(o)) for o in run.ops if writes(o) and any(i.producer in cause.ran for i in o.inputs))
    return any(0 <= at < len(o.inputs) and itself(o.inputs[at]) for o, at in into)


def _share(run: Run, ran: list[Op], module: str) -> float:
    """The share of the results of a model's forward arithmetic, in bytes, that ran wide."""
    return sum(map(run.arithmetic, ran)) / max(run.given(module), 1)


def _notes(run: Run, cause: _Cause, culprit: Operand, reach: Reach, serious: bool) -> Iterator[str]:
    made = run.ops[cause.op].outputs[0]
    work = f"{quantity(reach.flops, 'FLOP')} of matmul, " if reach.flops else ""
    until = ""
    if cause.ends >= 0:
        end = run.ops[cause.ends]
        where = f" at {short(run.place(end))}" if run.place(end).stack else ""
        of = f" of {end.module}" if end.module and end.module != run.ops[cause.op].module else ""
        cast = f"autocast cast back for {end.op}(){of}" if end.autocast else f"{end.op}(){of} cast back"
        until = f", until {cast}{where}"
    both = " in forward and backward" if any(run.ops[n].phase == "backward" for n in cause.ran) else ""
    ops = f"{reach.ops:,} op{'s' if reach.ops != 1 else ''}{both} ({work}{quantity(reach.bytes, 'B')} of results)"
    yield f"because of {quoted(culprit.shown)}, {ops} ran in {made}{until}"
    if not cause.chosen:
        yield f"{quoted(culprit.shown)} is {culprit.dtype}; {_whose(run, cause)} {cause.expected}"
    else:
        how = "by autocast" if culprit.origin.kind == "autocast" else "on purpose"
        yield f"it was cast to {culprit.dtype} {how}, and met {cause.expected} before it was cast back"
    if not serious:
        yield f"it made no matmul or convolution run in {made}"


def _whose(run: Run, cause: _Cause) -> str:
    op = run.ops[cause.op]
    return f"most parameters of {run.root(op.module)} are" if run.holds(op.module) else "the run computes in"


def _fix(run: Run, cause: _Cause, culprit: Operand, place: Place) -> Fix:
    """Cast the wide operand where it was born; if it must be computed wide, cast its result where it joins the
    stream."""
    recording, origin, expected = run.recording, culprit.origin, cause.expected
    ready: tuple[int, ...] = dataflow_paths.tables(recording, origin.place, culprit.dtype)
    made = graph.unmoved(run.ops, run.ops[cause.op].inputs[cause.operand].producer)
    if not ready and made >= 0 and _magnified(run, origin.place, culprit.dtype, made):
        same = lambda op: op.inputs[:1] == run.ops[made].inputs[:1] and tagged(op.op, "magnifies")  # `sin` beside `cos`
        ready = (made, *(n for n, op in enumerate(run.ops) if n != made and op.inputs and same(op)))
    if edits := editing.at_results(recording, ready, expected):
        place = graph.place_of(recording, recording.ops[ready[0]].place)
        return advise(place, cast_words(edits, expected), edits=edits, kind="cast")
    at_use = f"cast {quoted(culprit.shown)} to {expected} where it is used ({short(place)})"
    own = bool(origin.place.stack) and origin.place.stack[0].user
    if own and not ready and (edit := editing.at_birth(recording, origin.kind, origin.place, expected)) is not None:
        return advise(origin.place, birth_words(culprit, expected), edits=edit, others=(at_use,))
    if ready:
        return advise(place, at_use)
    at = origin.place if origin.place.stack else place
    return advise(at, f"make {quoted(culprit.shown)} {expected} where it is made", others=(at_use,))


def _magnified(run: Run, origin: Place, dtype: str, number: int) -> bool:
    """Whether something between a birth and an op makes a rounding of its operand larger, as an angle's `cos` does."""
    events = enumerate(run.recording.events)
    born = {n for n, e in events if e.to == dtype and graph.place_of(run.recording, e.place) == origin}
    return any(tagged(run.ops[n], "magnifies", "precise") for n in graph.upstream(run.recording, number, born))
