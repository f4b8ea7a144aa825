"""Silent promotions (DT201): a stream of lower precision that one wider operand widened, with its reach.

An op is a promotion where its result has the dtype of a wide operand and is wider than another operand with
dimensions, and wider than what the model computes in. What was made from the result ran wide because of that operand
for as long as nothing else would have made it wide: not beyond an explicit cast of the stream, nor through a matmul
whose own weight is wide. So the reach is what would have run in the lower dtype, had the operand been narrow.

It is a warning where the harm goes beyond the op: matmuls or convolutions ran wide, or the wide stream went on through
other modules, or it is float64 that nobody asked for. It is a note where the width was chosen, by an explicit cast of
the stream itself, or where it ends at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from .. import graph
from ..records import Finding, Fix, FlowStep, Input, Op, Operand, Reach, Recording
from ..source import editing
from ..tables.codes import TITLES
from ..tables.dtypes import REAL, narrower, wider
from ..tables.operators import destination, flops, is_cast, is_move, result_bytes, writes
from .remedies import short
from .silent import FORWARD, Run, quantity

_FAR = 3
"""So many ops of arithmetic in a row, and in another module, are more than an island that ends at once;"""
_MUCH = 0.2
"""two are, where this share of what the model's arithmetic gave ran wide."""


@dataclass
class _Cause:
    """One wide operand's birth, and what it widened."""

    op: int
    operand: int
    in_line: str
    chosen: bool
    """Whether all that is wide comes from an explicit cast of the stream itself, or from autocast."""
    calls: int = 0
    ran: dict[int, int] = field(default_factory=dict)
    """What ran wide because of it -> after how many calls of arithmetic, as far as first occurrences tell."""
    left: bool = False
    """Whether it went on into another module of the model."""
    ends: int = -1


def find(run: Run) -> list[Finding]:
    """One finding for each birth of a wide operand that widened anything."""
    causes = _Walk(run).causes
    return [f for f in (_finding(run, c) for c in causes.values()) if f is not None]


class _Walk:
    """Follows the ops in the order of their first occurrence, which is that of their producers."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.causes: dict[tuple, _Cause] = {}
        self.because: dict[int, dict[tuple, tuple[int, str]]] = {}
        """For each op that ran wide because of something: the causes, and for each how far it is away and from which module."""
        self.islands: set[int] = set()
        """Ops whose result is wide since the stream itself was cast, on purpose or by autocast."""
        for number, op in enumerate(run.ops):
            if op.phase == "backward":
                self._backward(number, op)
            elif op.phase in FORWARD and op.outputs and op.outputs[0] in REAL:
                self._forward(number, op)

    def _backward(self, number: int, op: Op) -> None:
        for key in self.because.get(op.of, ()):
            if any(i.dtype == self.run.ops[op.of].outputs[0] for i in op.inputs):
                self.causes[key].ran[number] = 0

    def _forward(self, number: int, op: Op) -> None:
        made = op.outputs[0]
        operands = [(index, i) for index, i in enumerate(op.inputs) if i.dtype in REAL and i.shape]
        held = [(index, i) for index, i in operands if i.dtype == made]
        low = [i for _, i in operands if narrower(i.dtype, made)]
        for _, i in operands:
            if wider(i.dtype, made):
                for key in self.because.get(i.producer, ()):
                    cause = self.causes[key]
                    cause.ends = number if cause.ends < 0 else cause.ends
        if is_cast(op):
            if held:
                self._goes_on(number, op, held)
            elif low and self.run.computed(low[0]):
                self.islands.add(number)
        elif writes(op):  # the destination keeps its dtype, whatever is written
            self._goes_on(number, op, [(index, i) for index, i in held if index == destination(op)])
        elif low and held or len({i.dtype for i in low}) > 1:
            self._widens(number, op, held, operands)
        elif held:
            self._goes_on(number, op, held)
        elif low and self.run.computed(low[0]):
            self.islands.add(number)  # told to: dtype=torch.float32 on a softmax or a sum

    def _goes_on(self, number: int, op: Op, held: list[tuple[int, Input]]) -> None:
        """An op on wide operands only: wide because of a cause, unless something else would have made it wide anyway."""
        caused = [i for _, i in held if i.producer in self.because]
        others = [i for _, i in held if i.producer not in self.because]
        if any(i.producer in self.islands for i in others) or flops(op) and any(self._weight(i) for i in others):
            self.islands.add(number)
        elif caused:
            self._ran(number, op, caused, 0 if (is_move(op) or is_cast(op)) else 1)

    def _weight(self, i: Input) -> bool:
        """Whether an operand is a parameter, perhaps transposed."""
        while (
            i.holder is None
            and i.producer >= 0
            and is_move(self.run.ops[i.producer])
            and self.run.ops[i.producer].inputs
        ):
            i = self.run.ops[i.producer].inputs[0]
        return i.holder == "parameter"

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

    def _widens(self, number: int, op: Op, held: list[tuple[int, Input]], operands: list[tuple[int, Input]]) -> None:
        run, made = self.run, op.outputs[0]
        in_line = run.dominant(op) or self._chosen(op)
        caused = [i for _, i in held if i.producer in self.because]
        new = [(index, i) for index, i in held if i.producer not in self.because]
        chosen = [(index, i) for index, i in new if i.producer in self.islands]
        if chosen:
            # a table or weight joins a stream that was widened on purpose: no other stream is widened
            joined = [i for _, i in operands if i.dtype != made]
            if len(chosen) == len(new) and (caused or not any(run.computed(i) for i in joined)):
                self.islands.add(number)
                return
        if caused and not chosen:
            self._ran(number, op, caused, 1)
            return
        if (
            in_line is None
            or not wider(made, in_line)
            or not any(self._stream(i, held) for _, i in operands if i.dtype != made)
        ):
            return
        pool = (
            [(index, i) for index, i in new if (index, i) not in chosen]
            or new
            or [(n, i) for n, i in operands if i.dtype != in_line]
        )
        index, operand = next(((n, i) for n, i in pool if i.holder), pool[0])
        origin = run.origin(operand.step, in_line)
        key = origin.place.stack[:1] or (operand.step,), made
        cause = self.causes.get(key)
        if cause is None:
            chosen_all = bool(chosen) and len(chosen) == len(new) or origin.kind == "autocast"
            cause = self.causes[key] = _Cause(number, index, in_line, chosen_all)
        cause.calls += op.count
        cause.ran[number] = 0
        self.because.setdefault(number, {})[key] = 0, op.module

    def _stream(self, low: Input, held: list[tuple[int, Input]]) -> bool:
        """Whether a narrow operand is data or a weight, not a constant that joins a wide table."""
        return (
            low.holder is not None
            or self.run.computed(low)
            or prod(low.shape) >= max((prod(i.shape) for _, i in held), default=0)
        )

    def _chosen(self, op: Op) -> str | None:
        """Where nothing has parameters: the low dtype, if it was chosen on purpose and the wide one fell out of a default."""
        made, steps = op.outputs[0], self.run.recording.steps
        roots = {
            i.dtype: self.run.origin(i.step, None) for i in op.inputs if i.step >= 0 and i.dtype in REAL and i.shape
        }
        low = [d for d, o in roots.items() if d != made and o.explicit]
        wide = roots.get(made)
        return low[0] if steps and low and wide is not None and not wide.explicit else None


def _finding(run: Run, cause: _Cause) -> Finding | None:
    op = run.ops[cause.op]
    made = op.outputs[0]
    operands = tuple(run.operand(op, n, cause.in_line) for n, i in enumerate(op.inputs) if i.dtype in REAL)
    culprit = next(o for o in operands if o.index == cause.operand)
    ran = [run.ops[n] for n in cause.ran]
    reach = Reach(
        sum(o.count for o in ran), sum(flops(o) * o.count for o in ran), sum(result_bytes(o) * o.count for o in ran)
    )
    unasked = made == "float64" and not culprit.origin.explicit and len(ran) > 1
    # a loop over layers is one distinct op with a count: so often the stream passed it
    deepest = max(depth * max(run.ops[n].count // cause.calls, 1) for n, depth in cause.ran.items())
    much = deepest >= _FAR or deepest == _FAR - 1 and _share(run, ran, op.module) >= _MUCH
    serious = bool(reach.flops) or unasked or cause.left and much and not cause.chosen
    own = all((o.op, o.place) == (op.op, op.place) for o in ran if o.phase != "backward" and o is not op)
    if not serious and (
        cause.chosen and deepest < _FAR or own and _ends_inside(run, cause, op) or _accumulates(run, cause)
    ):
        return None  # an island that ends at once, or inside the very call of torch that made it; an average, which is to be wide
    place = run.place(op)
    steps = graph.flow(run.recording, op.inputs[cause.operand].step, cause.in_line)
    low = next((i.dtype for i in op.inputs if i.dtype in REAL and i.dtype != made), cause.in_line)
    flow = (*steps, FlowStep(place, op.op, op.module, f"{low} + {culprit.dtype}", made, "promotion"))
    return Finding(
        code="DT201", kind="promotion", severity="warning" if serious else "note", title=TITLES["DT201"], phase=op.phase,
        op=op.op, aten=op.aten, module=op.module, count=cause.calls, predicted=False, site=place, operands=operands,
        culprit=culprit, flow=flow, fix=_fix(run.recording, culprit, cause.in_line, place), exception=None,
        notes=tuple(_notes(run, cause, culprit, reach, serious)), reach=reach,
    )  # fmt: skip


def _accumulates(run: Run, cause: _Cause) -> bool:
    """Whether what was widened is added to the wide operand itself."""
    wide = run.ops[cause.op].inputs[cause.operand]

    def itself(i: Input) -> bool:
        return (i.step, i.dtype, i.shape) == (wide.step, wide.dtype, wide.shape)

    into = ((o, destination(o)) for o in run.ops if writes(o) and any(i.producer in cause.ran for i in o.inputs))
    return any(0 <= at < len(o.inputs) and itself(o.inputs[at]) for o, at in into)


def _share(run: Run, ran: list[Op], module: str) -> float:
    """How much of what a model's arithmetic gave in forward, in bytes, ran wide."""
    return sum(map(run.arithmetic, ran)) / max(run.given(module), 1)


def _ends_inside(run: Run, cause: _Cause, op: Op) -> bool:
    return cause.ends >= 0 and (run.ops[cause.ends].op, run.ops[cause.ends].place) == (op.op, op.place)


def _notes(run: Run, cause: _Cause, culprit: Operand, reach: Reach, serious: bool):
    made = run.ops[cause.op].outputs[0]
    work = f", {quantity(reach.flops, 'FLOP')} of matmul" if reach.flops else ""
    until = ""
    if cause.ends >= 0:
        end = run.ops[cause.ends]
        where = f" at {short(run.place(end))}" if run.place(end).stack else ""
        until = f", until {end.op}() narrows it{where}"
    yield f"{reach.ops:,} op{'s' if reach.ops != 1 else ''}{work} and {quantity(reach.bytes, 'B')} of results ran in {made} because of it{until}"
    if not cause.chosen:
        yield f"{culprit.shown} is {culprit.dtype}; {_whose(run, cause)} {cause.in_line}"
    else:
        how = "by autocast" if culprit.origin.kind == "autocast" else "on purpose"
        yield f"it was cast to {culprit.dtype} {how}, and joined {cause.in_line} before it was cast back"
    if not serious:
        yield "no matmul or convolution ran wide"


def _whose(run: Run, cause: _Cause) -> str:
    op = run.ops[cause.op]
    return f"most parameters of {run.root(op.module)} are" if run.holds(op.module) else "the run computes in"


def _fix(recording: Recording, culprit: Operand, in_line: str, place) -> Fix | None:
    """Cast the wide operand where it was born, or the result of what must be computed wide where it joins the stream."""
    origin = culprit.origin
    own = origin.place.stack and origin.place.stack[0].user
    ready = graph.table(recording, origin.place, culprit.dtype)
    if ready.stack and (edit := editing.at_widening(recording, ready, in_line)) is not None:
        why = f"keep computing it in {culprit.dtype}, and cast it to {in_line} here, before it meets the rest"
        return Fix("cast", ready, (edit,), True, why)
    at_use = f"cast {culprit.shown} to {in_line} where it is used, {short(place)}"
    if own and (edit := editing.at_birth(recording, origin.kind, origin.place, in_line)) is not None:
        why = {
            "factory": f"give it dtype=torch.{in_line} where it is made",
            "conversion": f"make it {in_line} where it is converted",
            "cast": f"cast to {in_line} here, or leave the cast out",
        }.get(origin.kind, f"make it {in_line} where it is born")
        return Fix("dtype", origin.place, (edit,), True, why, (at_use,))
    return Fix(
        "dtype",
        origin.place if origin.place.stack else place,
        (),
        False,
        f"make it {in_line} here, or cast it where it is used",
        (at_use,),
    )
