"""Autocast's copies of weights that are computed with after a step has changed the weights (DT304).

Autocast keeps its narrow copies of weights until the outermost region ends. If that spans several steps, every forward
pass in it computes with the weights from before the first one (``capture.cached_casts``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..records import Finding, FlowStep, Op, Operand, Origin, Place, Value
from ..source import regions
from ..tables.english import quoted
from .advice import advise
from .mechanisms import LEAST_STEPS
from .run_facts import Run
from .silent_findings import At, silent_finding


def find(run: Run) -> Iterator[Finding]:
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
