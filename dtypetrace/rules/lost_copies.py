"""Copies of weights that are computed with after a step, and that no step changes (DT304).

Autocast keeps its narrow copies of weights until the outermost region ends. If that spans several steps, every forward
pass in it computes with the weights from before the first one (``capture.cached_casts``). And a cast of a parameter
that a program keeps is none: no module lists it, so no optimizer has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..records import FORWARD, Finding, FlowStep, Op, Operand, Origin, Place, Value
from ..source import regions
from ..tables.english import quoted
from ..tables.operators import NAMED_CASTS, is_cast
from .advice import advise
from .mechanisms import LEAST_STEPS
from .run_facts import Run
from .silent_findings import At, found_at, silent_finding


def find(run: Run) -> Iterator[Finding]:
    """One finding for each autocast region whose copies outlived steps."""
    members_of: dict[Place, list[Value]] = {}
    for v in run.recording.values:
        # two optimizers may step in turn inside a region that is entered anew each time
        if v.stale >= LEAST_STEPS and v.stale > run.ops[v.op].count:
            members_of.setdefault(_region(run, run.ops[v.op]), []).append(v)
    for region, members in members_of.items():
        yield _of_region(run, region, members)
    yield from (_of_kept(run, number) for number in _kept(run))


def _region(run: Run, op: Op) -> Place:
    """The outermost region around an op: its end is where autocast drops its copies."""
    around = [place for place, _ in regions.around(run.recording.text, run.place(op))]
    return around[-1] if around else run.place(op)


def _of_region(run: Run, region: Place, members: list[Value]) -> Finding:
    largest = max(members, key=lambda v: prod(run.ops[v.op].shape))
    op = run.ops[largest.op]
    used, made, weight = run.place(op), op.outputs[0], run.operand(op, 0, op.outputs[0])
    step = next((run.recording.places[u.place] for u in run.recording.updates if u.place >= 0), used)
    several = f"{len(members)} weights" if len(members) > 1 else quoted(weight.name)
    culprit = Operand(
        0, weight.name, made, op.shape, op.device, "parameter", Origin("autocast", None, "autocast", region)
    )
    opened = FlowStep(region, "autocast", "", weight.dtype, made, "autocast", said=f"autocast keeps {made} copies here")
    said = f"computes with the {made} copy from before {largest.stale} steps"
    changed = FlowStep(step, "step", "", weight.dtype, weight.dtype, "value", said="only the weights change")
    change = "enter autocast anew for each forward pass, so that it ends before the step"
    return silent_finding(
        "DT304",
        At.step(step, op.module),
        culprit=culprit,
        flow=(opened, FlowStep(used, op.op, op.module, weight.dtype, made, "cast", said=said), changed),
        fix=advise(region, change, kind="plan", others=("give this region cache_enabled=False",)),
        count=largest.stale,
        title="one autocast region spans several steps, and its forward passes do not see what the steps change",
        notes=(
            f"{several} changed in {largest.stale} steps, and after each of them the copies that autocast had made "
            "before were used: what is computed here does not change",
        ),
    )


def _kept(run: Run) -> Iterator[int]:
    """Casts that a program made once, through which the gradient of each of several steps goes back: what they were
    made of has changed since, or does not change at all. One forward pass that is differentiated several times ran
    once, as its casts did."""
    steps = run.recording.step_ends
    for op in run.ops if steps else ():
        if op.phase != "backward" or not 0 <= op.of < len(run.ops) or op.count < LEAST_STEPS:
            continue
        cast = run.ops[op.of]
        once = is_cast(cast) and cast.op in NAMED_CASTS and cast.phase in FORWARD and cast.count == 1
        if once and is_cast(op) and any(run.ops[n].count >= op.count for n in run.users[op.of]):
            yield op.of


def _of_kept(run: Run, number: int) -> Finding:
    op = run.ops[number]
    kept = run.result(number, None)
    assigned = run.recording.events[kept_event].assigned if (kept_event := run.event_of(number)) >= 0 else ()
    name = quoted(assigned[0]) if assigned else "what a parameter was cast to"
    fix = advise(
        run.place(op),
        "make a parameter of what is cast: `nn.Parameter(x.to(dtype))` instead of `nn.Parameter(x).to(dtype)`",
        others=("cast it in each forward pass",),
    )
    count = max(run.ops[n].count for n in run.users[number])
    return found_at(
        run,
        op,
        "DT304",
        kept,
        fix,
        said="this cast is no parameter: no optimizer changes it",
        title=f"{name} is a cast that was made once: it does not learn",
        notes=(
            f"gradients go back through this one cast in {count} forward passes, and none of them changes what it made",
        ),
    )
