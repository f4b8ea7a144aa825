"""Steps that change one copy of the weights, while another one is computed with (DT304).

``weight.float()`` is the weight itself where that is in float32, and a copy where it is not. A step that subtracts
gradients from it in place then works in the one case only: in the other, what it changes is read by nobody.

Autocast keeps its narrow copies of weights until the outermost region ends. If that spans several steps, every forward
pass in it computes with the weights from before the first one (``capture.cached_casts``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .. import graph
from ..records import FORWARD, Finding, Fix, FlowStep, Op, Operand, Origin, Place, Value
from ..source import regions
from ..tables.dtypes import REAL, wider
from ..tables.english import quoted
from ..tables.operators import is_cast
from .making import At, silent_finding
from .mechanisms import LEAST_STEPS
from .run_facts import Run

_FAR = 64
"""Ops above a change that are searched for a gradient."""


def find(run: Run) -> Iterator[Finding]:
    """One finding for each line that casts weights so, and one for each autocast region."""
    yield from _of_regions(run)
    seen: set[object] = set()
    for number, op in enumerate(run.ops):
        if not _copies_weight(run, op) or op.count < LEAST_STEPS:
            continue
        line = run.place(op).stack[:1]
        changes = _changes(run, number)
        if line not in seen and changes and any(_by_gradient(run, change) for change in changes):
            seen.add(line)
            yield _finding(run, op, run.ops[changes[-1]])


def _copies_weight(run: Run, op: Op) -> bool:
    """Whether an op outside of modules casts a narrow weight to a wide dtype."""
    if not is_cast(op) or op.phase not in (*FORWARD, "optimizer") or op.module or not op.inputs or not op.outputs:
        return False
    return op.outputs[0] in REAL and wider(op.outputs[0], op.inputs[0].dtype) and run.weight_of(op.inputs[0])


def _changes(run: Run, number: int) -> list[int]:
    """The ops that change a tensor in place, if nothing else uses it; else none."""
    chain, waiting = {number}, [number]
    while waiting:
        for user in run.users[waiting.pop()]:
            op = run.ops[user]
            if not op.written or any(i.producer in chain for n, i in enumerate(op.inputs) if n not in op.written):
                return []
            if user not in chain:
                chain.add(user)
                waiting.append(user)
    return sorted(chain - {number})


def _by_gradient(run: Run, number: int) -> bool:
    """Whether an op changes a tensor by what was computed from a gradient.

    A weight's own new value was computed from one, too: what moves towards that is an average, which nobody need read
    before the run ends.
    """
    op = run.ops[number]
    operands = [i.producer for n, i in enumerate(op.inputs) if n not in op.written and not run.weight_of(i)]
    not_weights = lambda above: (i for i in above.inputs if not run.weight_of(i))
    return any(run.ops[n].phase == "backward" for n in graph.ops_above(run.ops, operands, not_weights, most=_FAR))


def _finding(run: Run, op: Op, change: Op) -> Finding:
    place, site = run.place(op), run.place(change)
    weight, made = op.inputs[0], op.outputs[0]
    culprit = Operand(
        0, f"result of {op.op}", made, op.shape, op.device, None, Origin("cast", None, op.op, place, True)
    )
    copied = FlowStep(place, op.op, op.module, weight.dtype, made, "cast", said=f"a {made} copy of a weight")
    ends = FlowStep(site, change.op, change.module, made, made, "value", said="only the copy changes")
    return silent_finding(
        "DT304",
        "lost-update",
        At.of(op, place),
        severity="warning",
        operands=(culprit,),
        flow=(copied, ends),
        fix=Fix(
            "plan",
            site,
            (),
            False,
            f"write the copy back into the {weight.dtype} weight after this change: weight.copy_(copy)",
            (f"keep the trained weights in {made}",),
        ),
        count=op.count,
        title=f"steps change {made} copies of {weight.dtype} weights, and nothing reads the copies",
        notes=(f"for a {made} weight, {quoted(op.op)} returns the weight itself; for a {weight.dtype} one, a copy",),
    )


# ---------------------------------------------------------------- autocast's copies


def _of_regions(run: Run) -> Iterator[Finding]:
    """One finding for each autocast region whose copies outlived steps."""
    members_of: dict[Place, list[Value]] = {}
    for v in run.recording.values:
        # two optimizers may step in turn inside a region that is entered anew each time
        if v.stale >= LEAST_STEPS and v.stale > run.ops[v.op].count:
            members_of.setdefault(_region(run, run.ops[v.op]), []).append(v)
    for region, members in members_of.items():
        yield _of_region(run, region, members)


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
        "lost-update",
        At.step(step, op.module),
        severity="warning",
        operands=(culprit,),
        flow=(opened, FlowStep(used, op.op, op.module, weight.dtype, made, "cast", said=said), changed),
        fix=Fix("plan", region, (), False, change, ("give this region cache_enabled=False",)),
        count=largest.stale,
        title="one autocast region spans several steps, and its forward passes do not see what the steps change",
        notes=(
            f"{several} changed in {largest.stale} steps, and after each of them the copies that autocast had made "
            "before were used: what is computed here does not change",
        ),
    )
