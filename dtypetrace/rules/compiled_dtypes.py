"""Where compiled code computes in another dtype than eager, or computes what eager refuses (DT207, DT406)."""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..records import Finding, Fix, FlowStep, Operand, Origin, Place
from ..records.compiled import Node, Region, Step
from ..tables.compiled_operators import HALF, base
from ..tables.dtypes import REAL
from ..tables.english import listed, quoted
from .making import At as Call
from .making import silent_finding
from .run_facts import Run

_PRODUCTS = frozenset("mm addmm bmm baddbmm convolution convolution_backward _scaled_mm".split())


def find(run: Run, region: Region) -> Iterator[Finding]:
    yield from _accepted(run, region)
    yield from _other(run, region)
    yield from _without_autocast(run, region)


def _accepted(run: Run, region: Region) -> Iterator[Finding]:
    """Calls that eager refuses and compiled code computes."""
    for step in region.steps:
        if not step.refused:
            continue
        place, mixed = graph.place_of(run.recording, step.place), [d for d in dict.fromkeys(step.given) if d in REAL]
        name = quoted(step.op)
        computed = f"computes it in {step.dtype}" if step.dtype else "computes it"
        yield silent_finding(
            "DT207",
            "accepted-mismatch",
            Call(place, "forward", step.op, step.refused, step.module),
            severity="note",
            operands=tuple(_operand(n, "operand", dtype, step.op, place) for n, dtype in enumerate(mixed)),
            flow=(FlowStep(place, step.op, step.module, mixed[0], step.dtype, "value", said=(
                f"{listed(mixed)} meet: eager refuses this, the compiler {computed}"
            )),),
            fix=Fix("cast", place, (), False, "cast one of them, so that the program also runs without torch.compile"),
            title=f"{name} of {listed(mixed)} runs only because it is compiled: eager refuses it",
        )  # fmt: skip


def _other(run: Run, region: Region) -> Iterator[Finding]:
    """Results whose dtype is not the one that eager gives: by decomposition, by a kernel, or by a fake kernel's word."""
    for step, computed in _computed(region):
        place, name = graph.place_of(run.recording, step.place), quoted(step.op)
        yield silent_finding(
            "DT207",
            "other-dtype",
            Call(place, "forward", step.op, None, step.module),
            severity="warning",
            operands=(_operand(0, f"result of {step.op}", computed, step.op, place),),
            flow=(FlowStep(place, step.op, step.module, step.dtype, computed, "value", said=(
                f"the program says {step.dtype}; compiled code computes and returns {computed}"
            )),),
            fix=Fix("cast", place, (), False, f"cast the operands of {name} to {step.dtype} before it"),
            title=f"compiled {name} gives {computed} where eager gives {step.dtype}",
        )  # fmt: skip


def _computed(region: Region) -> Iterator[tuple[Step, str]]:
    steps = {number: s for number, s in enumerate(region.steps)}
    written: dict[int, str] = {}
    for graph_ in region.graphs:
        for node in graph_.nodes:
            if node.step >= 0 and node.memory in REAL and node.dtype in REAL and node.memory != node.dtype:
                if steps[node.step].dtype == node.dtype:
                    written[node.step] = node.memory
    for number, step in steps.items():
        made = written.get(number, step.computed)
        if step.dtype in REAL and made in REAL and made != step.dtype:
            yield step, made


def _without_autocast(run: Run, region: Region) -> Iterator[Finding]:
    """Products that the forward keeps in float32 and the backward computes in 16 bits."""
    forward: dict[int, list[Node]] = {}
    for graph_ in region.graphs:
        for node in graph_.nodes if graph_.phase == "forward" else ():
            if base(node.op) in _PRODUCTS and node.seq >= 0:
                forward.setdefault(node.seq, []).append(node)
    told: set[int] = set()
    for graph_ in region.graphs:
        for node in graph_.nodes if graph_.phase == "backward" else ():
            made = forward.get(node.seq, [])
            narrowed = base(node.op) in _PRODUCTS and node.dtype in HALF and made
            if not narrowed or any(n.dtype in HALF for n in made) or made[0].place in told:
                continue
            told.add(made[0].place)
            place = graph.place_of(run.recording, made[0].place)
            step = region.steps[made[0].step] if made[0].step >= 0 else None
            name = step.op if step is not None else base(made[0].op)
            yield silent_finding(
                "DT406",
                "autocast-backward",
                Call(place, "backward", name, node.op, made[0].module),
                severity="warning",
                operands=(_operand(0, f"result of {name}", made[0].dtype, name, place),),
                flow=(
                    FlowStep(place, name, made[0].module, made[0].dtype, made[0].dtype, "value", said=(
                        f"the forward computes in {made[0].dtype}"
                    )),
                    FlowStep(place, name, made[0].module, made[0].dtype, node.dtype, "autocast", said=(
                        f"its backward was compiled under the autocast around the region, and computes in {node.dtype}"
                    )),
                ),
                fix=Fix("compile", place, (), False, (
                    'set torch._functorch.config.backward_pass_autocast = "off" before compiling'
                ), ("open the autocast inside the compiled function",)),
                title=f"the compiled backward of {quoted(name)} computes in {node.dtype}, its forward in {made[0].dtype}",
            )  # fmt: skip


def _operand(index: int, name: str, dtype: str, op: str, place: Place) -> Operand:
    return Operand(index, name, dtype, (), "", None, Origin("factory", None, op, place))
