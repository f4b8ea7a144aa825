"""Do the weights learn (DT301, DT303 to DT306): findings from what the optimizer's steps were measured to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from .. import graph
from ..foresight import DtypeChange
from ..records import FORWARD, Edit, Finding, FlowStep, Operand, Origin, Recording, Update
from ..source import editing
from ..tables.dtypes import DTYPES, HALF, REAL
from ..tables.english import quoted
from ..tables.operators import tagged, writes
from . import compensated, titles, wide_weights
from .advice import advise
from .checks import sound
from .mechanisms import LEAST_STEPS, Mechanism, cancelled, lost_state, lost_states, mechanism, vanishes
from .run_facts import Run
from .silent_findings import At, silent_finding

ENOUGH_STEPS = 4
"""In fewer steps, weights that hardly moved are no reason to change how a program trains; none that moved at all is."""
FEW = f"these are few steps: fix changes how a program trains only if this is so after {ENOUGH_STEPS} steps"

MOST_SHOWN = 8
"""Operands that a finding about many parameters lists."""
_MUCH_SUBNORMAL = 0.1
"""The share of a gradient below float16's normal range that is worth a note."""


@dataclass(frozen=True)
class _Group:
    """Parameters of one dtype and birth to which one optimizer's step does the same."""

    code: str
    members: tuple[tuple[Update, Mechanism], ...]
    quiet: int = 0
    """How many other parameters of the optimizer get a gradient of zeros."""
    dead: bool = False
    """Whether no parameter of the optimizer moved at all."""
    few: bool = False
    """Whether it is seen in fewer than ``ENOUGH_STEPS`` steps, and some parameter moved."""

    @property
    def worst(self) -> tuple[Update, Mechanism]:
        return max(self.members, key=lambda pair: len(pair[1].facts))


def in_few_steps(recording: Recording, finding: Finding) -> bool:
    """Whether a finding says that weights hardly moved, and the run took fewer than ``ENOUGH_STEPS`` steps."""
    return finding.code == "DT304" and finding.severity == "warning" and _few(recording)


def _few(recording: Recording) -> bool:
    return max((u.steps for u in recording.updates), default=0) < ENOUGH_STEPS


def find(run: Run) -> Iterator[Finding]:
    """Findings DT301 and DT303 to DT305, one for each cause. What a step rounds away is not lost where the program adds
    it to the next one, or rounds at random, so that the mean is kept."""
    recording, later, drawn = run.recording, compensated.weights(run), _drawn(run)
    judged = [(u, mechanism(u)) for u in recording.updates]
    saturated = _saturated(recording)
    groups: dict[tuple[object, ...], list[tuple[Update, Mechanism]]] = {}
    for u, m in judged:
        code = _code(u, m, saturated)
        if code == "DT304" and (u.event in later or u.moved and u.event in drawn):
            continue
        if code is not None and not cancelled(u, recording.updates):
            decided = _decided(run, u).origin.place
            groups.setdefault((code, u.dtype, decided.stack[-3:], u.place), []).append((u, m))
    explained = {members[0][0].place for (code, *_), members in groups.items() if code in ("DT303", "DT304")}
    for key, members in groups.items():
        code = str(key[0])
        place = members[0][0].place
        same_place = [(u, m) for u, m in judged if u.place == place]
        if code == "DT305" and place in explained:
            continue  # a LoRA's down matrix gets no gradient while its up matrix stays zero
        quiet = 0 if code == "DT305" else sum(m.name == "zero gradient" for _, m in same_place)
        dead = all(u.moved == 0 for u, _ in same_place)
        few = code == "DT304" and not dead and _few(recording)
        yield _finding(run, _Group(code, tuple(members), quiet, dead, few))


def _drawn(run: Run) -> frozenset[int]:
    """The events of what optimizer steps write that depends, number by number, on random ones which they draw: a random
    projection of a gradient rounds nothing."""
    by_number = lambda n: run.ops[n].phase == "optimizer" and not tagged(run.ops[n], "matmul")
    found = set[int]()
    for drawn, op in enumerate(run.ops):
        if by_number(drawn) and tagged(op, "random"):
            below = (run.ops[n] for n, _ in run.below([drawn], by_number) if by_number(n) and writes(run.ops[n]))
            found |= {o.inputs[0].event for o in below if o.inputs and prod(o.inputs[0].shape) == prod(op.shape)}
    return frozenset(found) - {-1}


_NEARLY_ALL = 0.9


def _saturated(recording: Recording) -> bool:
    """Whether bfloat16 made nearly all numbers of an op in forward zero, or the derivative of a tanh or a sigmoid.

    Its range is as wide as float32's, so no gradient is flushed in it. A gradient is zero where a result was rounded to
    one that does not depend on its operand any more.
    """
    ops = recording.ops
    lost = (p.op for p in recording.spot_checks if p.size and p.lost_in_all >= _NEARLY_ALL)
    flat = (v.op for v in recording.values if v.rows and v.lost_rows >= _NEARLY_ALL * v.rows)
    return any(ops[n].outputs[:1] == ("bfloat16",) and ops[n].phase in FORWARD for n in lost) or any(
        ops[n].outputs[:1] == ("bfloat16",) and ops[n].phase == "backward" for n in flat
    )


_QUANTITY = 1024.0
"""The weights of a network are near 1 or smaller. Those rightly stand still in the first steps of a warm-up. A
parameter that is this large is a quantity with a unit, such as a time."""


def is_quantity(u: Update) -> bool:
    """Whether a parameter is too large to be a network's weight."""
    return u.dtype in REAL and u.magnitude >= _QUANTITY


def _outgrown(u: Update, m: Mechanism) -> bool:
    """Whether a wide parameter is so large that the next number of its dtype is further away than a step."""
    still = m.name == "below resolution" and u.moved == 0
    return still and is_quantity(u) and 0 < u.lr < u.magnitude * DTYPES[u.dtype].rounding


def _code(u: Update, m: Mechanism, saturated: bool) -> str | None:
    if u.dtype not in HALF:
        if u.broken and lost_state(u):
            return "DT303"
        return "DT304" if _outgrown(u, m) else None  # else its dtype did not keep it from moving
    if m.name in ("state underflow", "overshoot", "broken") and (u.broken or m.name == "overshoot"):
        return "DT303"
    if m.name in ("untouched", "state underflow", "below resolution"):
        return "DT304"
    if m.name == "zero gradient" and u.zero >= LEAST_STEPS and (u.dtype == "float16" or saturated):
        return "DT305"
    return None


def born(recording: Recording, u: Update) -> Origin:
    """Where a parameter's dtype was decided."""
    return graph.origin(recording, u.event, u.dtype, u.name)


class _Decided(NamedTuple):
    """Whose dtype is to blame for what steps did to a parameter: its own, or that of the optimizer's state."""

    event: int
    dtype: str
    origin: Origin
    state: str = ""
    """The state's name; empty where it is the parameter's own."""
    copy: int = -1
    """The op that copied what is trained from other numbers, whose dtype was not chosen for training; else -1."""


def _decided(run: Run, u: Update) -> _Decided:
    recording = run.recording
    if u.dtype not in HALF and (lost := next(lost_states(u), None)) is not None:
        return _Decided(lost.event, lost.dtype, graph.origin(recording, lost.event, lost.dtype, lost.name), lost.name)
    if (copy := _copied(run, u)) >= 0:
        return _Decided(u.event, u.dtype, graph.ran(recording, run.ops[copy]), copy=copy)
    return _Decided(u.event, u.dtype, born(recording, u))


def _copied(run: Run, u: Update) -> int:
    """The op that made what is trained, but is no model's parameter, from numbers that had its dtype before, such as a
    prompt that begins as some of a frozen model's embeddings; -1 for none."""
    if u.dtype not in HALF or any(f".{p.name}".endswith(f".{u.name}") for p in run.recording.parameters):
        return -1
    steps = (op for op in run.ops if op.phase == "optimizer")
    taken = (i for op in steps for i in op.inputs if (i.event, i.shape) == (u.event, u.shape))
    made = next((i.producer for i in taken if i.producer >= 0), -1)
    if made < 0 or run.ops[made].phase not in FORWARD or writes(run.ops[made]):
        return -1
    return made if any(i.dtype == u.dtype for i in run.ops[made].inputs) else -1


def _finding(run: Run, group: _Group) -> Finding:
    recording = run.recording
    worst, m = group.worst
    code, updates = group.code, [u for u, _ in group.members]
    if code == "DT303" and not any(lost_state(u) or vanishes(u.eps, u.dtype) for u in updates):
        code = "DT301"  # no state was lost: the numbers left the dtype's range
    site = graph.place_of(recording, worst.place)
    operands = tuple(
        Operand(n, u.name, u.dtype, u.shape, "", "parameter", born(recording, u))
        for n, u in enumerate(updates[:MOST_SHOWN])
    )
    culprit = next((o for o in operands if o.name == worst.name), None)
    event, dtype, origin, state, copy = _decided(run, worst)
    if culprit is not None and copy >= 0:
        culprit = replace(culprit, origin=origin)
    edits = _wide_copy(run, copy)
    if edits:
        made = f"{dtype} weights, {worst.name}, are made here from others"
        fix = advise(origin.place, "copy them in float32: they are trained", edits=edits)
    elif state:
        made = f"{dtype} is decided here for {quoted(state)}, in the optimizer's state"
        culprit = Operand(0, state, dtype, worst.shape, "", None, origin)
        edit = editing.at_birth(recording, origin.kind, origin.place, "float32") if origin.place.stack else None
        fix = advise(origin.place, f"keep {quoted(state)} in float32", "as the weights are", edits=edit)
    else:
        made = f"{worst.dtype} weights, such as {titles.shared([worst.name], 1)}, "
        made += "come in here: they were made before the trace" if origin.kind == "input" else "are made here"
        change, lines = wide_weights.advice(recording, origin, worst.dtype, site)
        fix = advise(origin.place, change, kind="plan", others=_others(worst, m), lines=lines)
    still = group.dead or all(u.moved == 0 for u in updates)
    ends = FlowStep(site, "step", "", worst.dtype, worst.dtype, "value", said=_what(code, worst, still))
    return silent_finding(
        code,
        At.step(site, worst.name.rpartition(".")[0]),
        severity="error" if group.dead and code == "DT304" or code == "DT303" and worst.broken else "warning",
        operands=operands,
        culprit=culprit or Operand(0, worst.name, worst.dtype, worst.shape, "", "parameter", origin),
        flow=(*birth(recording, event, origin, made), ends),
        fix=fix,
        count=sum(u.steps or u.zero for u in updates),
        title=titles.training(code, updates, still, int(recording.meta.get("steps", 0))),
        notes=_notes(group),
        weights=[u.name for u in updates],
    )


def _wide_copy(run: Run, copy: int) -> tuple[Edit, ...]:
    """The edit that makes what is trained float32 where it is copied; none where something objects."""
    edits = editing.at_results(run.recording, [copy], "float32") if copy >= 0 else ()
    return edits if sound(run, edits, DtypeChange(results={copy: "float32"})) else ()


def _what(code: str, u: Update, still: bool) -> str:
    return {
        "DT301": f"{u.optimizer}'s step makes these weights infinite or NaN",
        "DT303": f"{u.optimizer}'s step makes these weights {'infinite or NaN' if u.broken else 'far too large'}",
        "DT304": f"{u.optimizer}'s step changed {'none' if still else 'few of the numbers'} of these weights",
        "DT305": "the gradient of these weights is zero in every step",
    }[code]


def _notes(group: _Group) -> Iterator[str]:
    worst, m = group.worst
    alike = all(other.facts[:1] == m.facts[:1] for _, other in group.members)
    named = titles.shared([worst.name], len(group.members) if alike else 1)
    yield f"{named}: {m.facts[0]}" if m.facts else named
    yield from m.facts[1:]
    if group.quiet:
        get = "other weights get" if group.quiet > 1 else "other weight gets"
        why = "the weights of later layers do not change"
        if all(u.magnitude == 0 for u, _ in group.members):
            why = "it is a product with the weights that did not move, and those are all zero"
        yield f"{group.quiet} {get} a gradient of zero: {why}"
    if worst.dtype in HALF and worst.subnormal > _MUCH_SUBNORMAL:
        yield f"{worst.subnormal:.0%} of the gradient is so small that float16 holds only some of its digits"
    if group.few:
        yield FEW


def _others(u: Update, m: Mechanism) -> tuple[str, ...]:
    """The alternative remedies."""
    if u.dtype not in HALF:
        return ()
    if m.name == "zero gradient":
        if u.dtype != "float16":
            return ()
        by_hand = "scale the loss by hand, so that its gradients fit float16, and divide them again before the step"
        return (f"{by_hand} (torch.amp.GradScaler refuses float16 weights)",)
    if m.name == "below resolution":
        return other_optimizer(u.dtype)
    return (f"use an optimizer that keeps its state in float32 for {u.dtype} weights",)


def other_optimizer(dtype: str) -> tuple[str, ...]:
    """The remedy that leaves the weights in a 16-bit dtype."""
    keeps = "one that keeps a float32 copy of them, or rounds stochastically"
    return (f"use an optimizer that can move {dtype} weights: {keeps}",)


def birth(recording: Recording, step: int, origin: Origin, said: str) -> tuple[FlowStep, ...]:
    """A flow from a birth on, with the birth's text; empty where the birth was not seen."""
    if not origin.place.stack:
        return ()
    flow = graph.flow(recording, step, None)
    made = flow[0] if flow else FlowStep(origin.place, origin.op or "", "", "", "", "value")
    # of weights that were made and then cast, the cast is enough; a default dtype says little without what took it
    rest = flow[1:] if made.op == "set_default_dtype" else ()
    return (replace(made, place=origin.place, said=said), *rest)


# ---------------------------------------------------------------- gradients of another dtype


def gradient_dtypes(recording: Recording) -> Iterator[Finding]:
    """DT306: gradients whose dtype is not their parameter's, without being refused."""
    groups: dict[tuple[object, ...], list[Update]] = {}
    for u in recording.updates:
        if u.gradient_dtype and u.gradient_dtype != u.dtype and not u.gradient_declared:
            key = u.gradient_dtype, u.dtype, _gradient(recording, u).origin.place.stack[:1]
            groups.setdefault(key, []).append(u)
    for members in groups.values():
        u = members[0]
        site = graph.place_of(recording, u.place)
        gradient = _gradient(recording, u)
        parameter = Operand(1, u.name, u.dtype, u.shape, "", "parameter", born(recording, u))
        said = f"{u.optimizer}'s step takes {u.gradient_dtype} gradients of {u.dtype} weights"
        ends = FlowStep(site, "step", "", u.gradient_dtype, u.dtype, "value", said=said)
        many = titles.shared([u.name], len(members))
        change, why = "leave the gradient in its parameter's dtype", ""
        edit = None
        if gradient.origin.kind == "cast":
            edit = editing.uncast(recording, gradient.origin.place)
            change, why = "leave this cast out", f"without it, the gradient stays {u.dtype}, as its weight is"
        instead = f"keep the weights in float32, and let autocast compute in {u.dtype}"
        yield silent_finding(
            "DT306",
            At.step(site, u.name.rpartition(".")[0]),
            operands=(gradient, parameter),
            flow=(*graph.flow(recording, u.gradient_event, u.dtype), ends),
            fix=advise(gradient.origin.place, change, why, edits=edit, others=(instead,) if u.dtype in HALF else ()),
            count=len(members),
            weights=[m.name for m in members],
            notes=(
                f"{many}: the step casts the gradient to {u.dtype} again; "
                f"DDP or another optimizer would refuse a {u.gradient_dtype} gradient",
            ),
        )


def _gradient(recording: Recording, u: Update) -> Operand:
    """A parameter's last gradient."""
    name = u.name + ".grad"
    origin = graph.origin(recording, u.gradient_event, u.dtype, name)
    return Operand(0, name, u.gradient_dtype, u.shape, "", "gradient", origin)
