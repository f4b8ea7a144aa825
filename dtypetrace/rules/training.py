"""Do the weights learn: from what the optimizer's steps were measured to do, to findings.

The mechanism is named from measurements alone: whether a step wrote, whether weights moved, what the optimizer's state
holds, how fine the dtype is next to the weights. Which optimizer it was decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .. import graph
from ..records import Finding, Fix, FlowStep, Op, Operand, Origin, Recording, Update
from ..tables.codes import TITLES
from ..tables.dtypes import DTYPES, HALF, REAL
from .silent import Run

MOST_SHOWN = 8
LEAST_STEPS = 2
"""Two, for in the first the gradient of a LoRA's down matrix is rightly zero, and warm-up may begin at zero."""
LEAST_MOVED = 0.5
"""Weights in a dtype that suits them move all but for a few per cent, so half is far from both."""
STATE_LOST = 0.05
FAR = 5.0
"""Steps this many learning rates long, from a state that is partly zero, overshoot: an adaptive step is about one long."""

LONGER = 1.5
"""The same against the steps of the same optimizer with a wide state, which leaves only rounding as another reason."""

# ---------------------------------------------------------------- one parameter


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What keeps a parameter from learning: a short name, and the facts that show it."""

    name: str
    """One of ``MECHANISMS``."""
    facts: tuple[str, ...] = ()


HEALTHY = Mechanism("healthy")
MECHANISMS = (
    "refused", "state underflow", "overshoot", "broken", "untouched", "below resolution", "gradient underflow", "no learning rate",
    "scaler backing off", "broken gradient", "not in the optimizer", "frozen", "no gradient", "zero gradient", "decay only", "one step", "healthy",
)  # fmt: skip
"""What can be the matter with a parameter, in the order in which one of them explains what is seen on others: a LoRA's down
matrix gets no gradient while its up matrix stays zero, whatever keeps it there."""


def mechanism(update: Update) -> Mechanism:
    """What the steps measured say about one parameter."""
    u = update
    if u.frozen:
        return Mechanism("frozen", ("its requires_grad is False",))
    if not u.held:
        return Mechanism("not in the optimizer", ("no parameter group of the optimizer holds it",))
    if u.skipped and u.steps == 0 and u.zero < LEAST_STEPS and u.scale > 1:
        return Mechanism(
            "scaler backing off",
            (f"the loss scaler left out {u.skipped} steps, as gradients were infinite at its scale, now {u.scale:g}",),
        )
    if not u.gradient_dtype:
        return Mechanism("no gradient", ("no step found a gradient on it: what it computes does not reach the loss",))
    if u.broken:
        lost = _lost_state(u) or _lost_eps(u)
        return Mechanism(
            "state underflow" if lost else "broken",
            (
                *lost,
                f"a step made {u.broken:,} of the {_sampled(u):,} numbers looked at infinite or NaN, from finite weights and gradients",
            ),
        )
    if u.lr == 0 and u.moved == 0:
        return Mechanism("no learning rate", ("its learning rate is 0",))
    if u.steps == 0 and u.broken_gradient:
        return Mechanism(
            "broken gradient", (f"its gradient held an infinity or NaN in each of {u.broken_gradient} steps",)
        )
    if u.steps == 0:
        return Mechanism("zero gradient", (f"its gradient was exactly zero in {u.zero} steps",))
    if u.moved < LEAST_MOVED * u.reached:
        facts = (f"{_share(u.moved, u)} of the numbers that had a gradient moved in {u.steps} steps",)
        if u.steps < LEAST_STEPS:
            return Mechanism("one step", facts)
        lost = _lost_state(u)
        if not u.written and u.moved == 0:
            return Mechanism(
                "state underflow" if lost else "untouched",
                (f"step() ran {u.steps} times and wrote to no weight", *lost),
            )
        if lost and u.moved == 0:
            return Mechanism("state underflow", (*facts, *lost))
        return Mechanism("below resolution", (*facts, *_resolution(u)))
    if u.lr > 0 and u.change > FAR * u.lr and _lost_state(u):
        return Mechanism(
            "overshoot", (f"a step changes a weight by {u.change:.0e} on average, with lr {u.lr:.0e}", *_lost_state(u))
        )
    if 0 <= u.own < LEAST_MOVED * u.reached:
        return Mechanism(
            "decay only",
            (f"{_share(u.own, u)} of the numbers that had a gradient moved otherwise than weight decay moves them",),
        )
    return HEALTHY


def of_adapter(judged: Iterable[tuple[Update, Mechanism]]) -> Mechanism:
    """What is the matter with an adapter: the one of its parameters' mechanisms that explains the others.

    Two things explain nothing. A matrix frozen on purpose, while one beside it is trained. And a wide matrix that does not move
    yet, beside one that began at zero and moves: its gradient is as small as the other still is.
    """
    judged = list(judged)
    begun = any(u.magnitude == 0 and m.name == "healthy" for u, m in judged)
    early = [
        m
        for u, m in judged
        if begun and u.magnitude > 0 and u.dtype not in HALF and m.name in ("below resolution", "one step")
    ]
    telling = [m for _, m in judged if m.name != "frozen" and m not in early]
    return min(telling or [m for _, m in judged], key=lambda m: (MECHANISMS.index(m.name), -len(m.facts)))


def compared(narrow: Update, wide: Update) -> Mechanism:
    """What the steps say about a parameter when the same steps were also taken with it in a wider dtype: what was lost only in
    the narrow one shows against that."""
    found = mechanism(narrow)
    if (
        found.name == "healthy"
        and wide.change
        and narrow.change > LONGER * wide.change
        and (lost := _lost_state(narrow))
    ):
        return Mechanism(
            "overshoot",
            (
                f"a step changes a weight {narrow.change / wide.change:.1f} times as much as with {wide.dtype} weights and state",
                *lost,
            ),
        )
    if found.name in ("healthy", "zero gradient") and narrow.reached < LEAST_MOVED * wide.reached:
        lost = f"{narrow.reached:,} of its sampled numbers had a gradient other than zero, and {wide.reached:,} with the weights in {wide.dtype}"
        return Mechanism("gradient underflow", (lost,))
    return found


def vanishes(number: float | None, dtype: str) -> bool:
    """Whether a positive number is rounded to zero in a dtype."""
    return number is not None and dtype in REAL and 0 < number <= DTYPES[dtype].smallest / 2


def _lost_state(u: Update) -> tuple[str, ...]:
    """What shows that the optimizer's own numbers were lost in their dtype."""
    lost = [s for s in u.state if s.dtype in HALF and s.zeros > STATE_LOST]
    facts = []
    if lost:
        names = ", ".join(f"{s.name} ({s.zeros:.0%})" for s in lost)
        facts.append(
            f"its state is zero in {lost[0].dtype} where the gradient is not: {names}; the smallest {lost[0].dtype} is {DTYPES[lost[0].dtype].smallest:.0e}"
        )
        if vanishes(u.eps, lost[0].dtype):
            facts.append(f"eps={u.eps:g} is 0 in {lost[0].dtype} as well")
    return tuple(facts)


def _lost_eps(u: Update) -> tuple[str, ...]:
    """What shows that a step divided by zero where the gradient was zero."""
    dtypes = [s.dtype for s in u.state if s.dtype in HALF and vanishes(u.eps, s.dtype)]
    return (f"eps={u.eps:g} is 0 in {dtypes[0]}, the dtype of its state",) if dtypes else ()


def _resolution(u: Update) -> tuple[str, ...]:
    if u.dtype not in REAL:
        return ()
    if not u.magnitude:
        return (f"next to 0, {u.dtype} holds no change below {DTYPES[u.dtype].smallest / 2:.1g}",)
    hold = f"next to {u.magnitude:.2g}, {u.dtype} holds no change below {u.magnitude * DTYPES[u.dtype].rounding:.1g}"
    return (f"{hold}; the learning rate is {u.lr:g}" if u.lr > 0 else hold,)


def _sampled(u: Update) -> int:
    return max(u.reached, u.broken, min(1024, math.prod(u.shape)))


def _share(count: int, u: Update) -> str:
    if count == 0:
        return "none"
    share = count / max(u.reached, 1)
    return f"{share:.0%}" if share >= 0.01 else "under 1%"


# ---------------------------------------------------------------- findings


def find(recording: Recording) -> Iterable[Finding]:
    """Findings DT301 and DT303 to DT305, one for each cause."""
    judged = [(u, mechanism(u)) for u in recording.updates]
    groups: dict[tuple, list[tuple[Update, Mechanism]]] = {}
    for u, m in judged:
        code = _code(u, m)
        if code is not None:
            groups.setdefault((code, u.dtype, born(recording, u).place.stack[-3:], u.place), []).append((u, m))
    told = {u.place for (code, *_), members in groups.items() for u, _ in members if code in ("DT303", "DT304")}
    for (code, *_), members in groups.items():
        if code == "DT305" and members[0][0].place in told:
            continue  # a LoRA's down matrix gets no gradient while its up matrix stays zero
        quiet = (
            sum(u.place == members[0][0].place and m.name == "zero gradient" for u, m in judged)
            if code != "DT305"
            else 0
        )
        dead = all(u.moved == 0 for u, _ in judged if u.place == members[0][0].place)
        yield _finding(recording, code, members, quiet, dead)


def _code(u: Update, m: Mechanism) -> str | None:
    if u.dtype not in HALF:
        return None  # nothing about a wide weight's dtype kept it from moving
    if m.name in ("state underflow", "overshoot", "broken") and (u.broken or m.name == "overshoot"):
        return "DT303"
    if m.name in ("untouched", "state underflow", "below resolution"):
        return "DT304"
    if m.name == "zero gradient" and u.zero >= LEAST_STEPS and u.dtype == "float16":
        return "DT305"
    return None


def born(recording: Recording, u: Update) -> Origin:
    return graph.origin(recording, u.step, u.dtype, u.name)


def _finding(
    recording: Recording, code: str, members: list[tuple[Update, Mechanism]], quiet: int, dead: bool
) -> Finding:
    worst, m = max(members, key=lambda pair: len(pair[1].facts))
    if code == "DT303" and not any(_lost_state(u) or vanishes(u.eps, u.dtype) for u, _ in members):
        code = "DT301"  # nothing was lost on the way: the numbers simply outgrew the dtype
    site = graph.place_of(recording, worst.place)
    origin = born(recording, worst)
    operands = tuple(
        Operand(i, u.name, u.dtype, u.shape, "", "parameter", born(recording, u))
        for i, (u, _) in enumerate(members[:MOST_SHOWN])
    )
    culprit = next(
        (o for o in operands if o.name == worst.name),
        Operand(0, worst.name, worst.dtype, worst.shape, "", "parameter", origin),
    )
    what = {
        "DT301": f"{worst.optimizer}'s step makes them infinite or NaN",
        "DT303": f"{worst.optimizer}'s step makes them infinite, NaN or far too long",
        "DT304": f"{worst.optimizer}'s step leaves {'every one' if dead else 'them'} where they were",
        "DT305": "their gradient is zero in every step",
    }[code]
    several = f"{len(members)} parameters, {worst.name} among them" if len(members) > 1 else worst.name
    notes = [f"{several}: {m.facts[0]}", *m.facts[1:]] if m.facts else [several]
    if quiet:
        notes.append(f"{quiet} more get a gradient of zeros meanwhile, as what they feed does not change")
    if worst.subnormal > 0.1:
        notes.append(f"{worst.subnormal:.0%} of its gradient lies below float16's normal range")
    flow = (
        *birth(recording, worst.step, origin, f"{worst.dtype} weights, {worst.name} among them, are made here"),
        FlowStep(site, "step", "", worst.dtype, worst.dtype, "value", said=what),
    )
    return Finding(
        code=code,
        kind={"DT301": "overflow", "DT303": "underflow", "DT304": "lost-update", "DT305": "zero-gradient"}[code],
        severity="error" if dead and code == "DT304" or code == "DT303" and worst.broken else "warning",
        title=TITLES[code],
        phase="optimizer",
        op="step",
        aten=None,
        module=worst.name.rpartition(".")[0],
        count=sum(u.steps or u.zero for u, _ in members),
        predicted=False,
        site=site,
        operands=operands,
        culprit=culprit,
        flow=flow,
        fix=Fix(
            "plan",
            origin.place,
            (),
            False,
            f"keep the weights that are trained in float32, and compute in {worst.dtype} by autocast",
            _others(worst, m),
        ),
        exception=None,
        notes=tuple(notes),
    )


def _others(u: Update, m: Mechanism) -> tuple[str, ...]:
    if m.name == "zero gradient":
        return ("scale the loss (torch.amp.GradScaler needs float32 weights), so that its gradients fit float16",)
    if m.name == "below resolution":
        return (
            f"an optimizer that keeps a float32 copy of the weights, or rounds stochastically, can move {u.dtype} weights",
        )
    return (f"an optimizer that keeps its state in float32 for {u.dtype} weights",)


def birth(recording: Recording, step: int, origin: Origin, said: str) -> tuple[FlowStep, ...]:
    if not origin.place.stack:
        return ()
    flow = graph.flow(recording, step, None)
    made = flow[0] if flow else FlowStep(origin.place, origin.op or "", "", "", "", "value")
    return (replace(made, place=origin.place, said=said),)


def gradient_dtypes(recording: Recording) -> Iterable[Finding]:
    """DT306: gradients of another dtype than their parameters, which nothing refused."""
    groups: dict[tuple, list[Update]] = {}
    for u in recording.updates:
        if u.gradient_dtype and u.gradient_dtype != u.dtype and not u.gradient_declared:
            origin = graph.origin(recording, u.gradient_step, u.dtype, u.name + ".grad")
            groups.setdefault((u.gradient_dtype, u.dtype, origin.place.stack[:1]), []).append(u)
    for members in groups.values():
        u = members[0]
        origin = graph.origin(recording, u.gradient_step, u.dtype, u.name + ".grad")
        site = graph.place_of(recording, u.place)
        gradient = Operand(0, u.name + ".grad", u.gradient_dtype, u.shape, "", "gradient", origin)
        parameter = Operand(1, u.name, u.dtype, u.shape, "", "parameter", born(recording, u))
        says = f"{u.optimizer}'s step takes {u.gradient_dtype} gradients of {u.dtype} weights"
        flow = (
            *graph.flow(recording, u.gradient_step, u.dtype),
            FlowStep(site, "step", "", u.gradient_dtype, u.dtype, "value", said=says),
        )
        many = f"{len(members)} parameters, {u.name} among them" if len(members) > 1 else u.name
        yield Finding(
            code="DT306", kind="gradient-dtype", severity="warning", title=TITLES["DT306"], phase="optimizer", op="step", aten=None,
            module=u.name.rpartition(".")[0], count=len(members), predicted=False, site=site, operands=(gradient, parameter), culprit=gradient,
            flow=flow,
            fix=Fix("dtype", origin.place, (), True, "leave the gradient in its parameter's dtype", ("keep the weights in float32, and compute in the narrow dtype by autocast",)),
            exception=None,
            notes=(f"{many}: the step rounds what was widened away again, and a reducer or another optimizer refuses it",),
        )  # fmt: skip


# ---------------------------------------------------------------- averages, sums, counters


def _streams(recording: Recording, op: Op, kept: int) -> bool:
    """Whether what an op adds to a tensor, to make a new one, was computed from that very tensor: a residual, the step of a sampler."""
    if len(op.inputs) < 2 or op.aten.partition(".")[0].endswith("_"):
        return False
    base, waiting, seen = op.inputs[kept].producer, [op.inputs[1 - kept].producer], set()
    while waiting and base >= 0:
        above = waiting.pop()
        if above == base:
            return True
        if above >= 0 and above not in seen:
            seen.add(above)
            waiting += [i.producer for i in recording.ops[above].inputs]
    return False


def lost_changes(recording: Recording) -> Iterable[Finding]:
    """DT307: tensors that are changed in place again and again, and stay where they are."""
    groups: dict[tuple, Finding] = {}
    run = Run(recording)
    for v in recording.values:
        op = recording.ops[v.op]
        target = next((i for i in op.inputs[v.kept :] if i.dtype in HALF), None)
        if (
            target is None
            or not v.due
            or v.done >= LEAST_MOVED * v.due
            or op.count <= LEAST_STEPS
            or _streams(recording, op, v.kept)
        ):
            continue
        site = graph.place_of(recording, op.place)
        origin = run.made_like(target, run.dominant(op)) or graph.origin(
            recording, target.step, target.dtype, target.name or None
        )
        culprit = Operand(
            0,
            target.name or origin.name or f"what {op.op} changes",
            target.dtype,
            target.shape,
            "",
            target.holder,
            origin,
        )
        said = f"{v.done / v.due:.0%} of the numbers that {op.op} should change, it does"
        groups.setdefault((origin.place.stack[:3], site.file, site.line), Finding(
            code="DT307", kind="lost-update", severity="warning", title=TITLES["DT307"], phase=op.phase, op=op.op, aten=op.aten, module=op.module,
            count=op.count, predicted=False, site=site, operands=(culprit,), culprit=culprit,
            flow=(
                *birth(recording, target.step, origin, f"{target.dtype} is decided here"),
                FlowStep(site, op.op, op.module, target.dtype, target.dtype, "value", said=said),
            ),
            fix=Fix("dtype", origin.place, (), False, "keep what is changed a little at a time in float32", ()),
            exception=None,
            notes=(f"next to a number, {target.dtype} holds no change below {DTYPES[target.dtype].rounding:.1%} of it",),
        ))  # fmt: skip
    yield from groups.values()
