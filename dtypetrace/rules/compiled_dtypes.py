"""Where compiled code computes in another dtype than eager, or computes what eager refuses (DT207, DT406)."""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..records import Finding, FlowStep, Operand, Origin, Place
from ..records.compiled import Node, Region, Step
from ..tables.dtypes import HALF, REAL
from ..tables.english import listed, quoted
from ..tables.operators import base, tagged
from .advice import advise
from .making import At as Call
from .making import silent_finding
from .run_facts import Run


def find(run: Run, region: Region) -> Iterator[Finding]:
    yield from _accepted(run, region)
    yield from _other(run, region)
    yield from _fake_kernels(run, region)
    yield from _without_autocast(run, region)


def _accepted(run: Run, region: Region) -> Iterator[Finding]:
    """Calls that eager refuses and compiled code computes."""
    for step in region.steps:
        if not step.refused:
            continue
        place, mixed = graph.place_of(run.recording, step.place), [d for d in dict.fromkeys(step.given) if d in REAL]
        both = listed(mixed)
        computed = f"computes it in {step.dtype}" if step.dtype else "computes it"
        said = f"{both} meet: eager refuses this, the compiler {computed}"
        yield silent_finding(
            "DT207",
            Call(place, "forward", step.op, step.refused, step.module),
            kind="accepted-mismatch",
            severity="note",
            operands=tuple(_operand(n, "operand", dtype, step.op, place) for n, dtype in enumerate(mixed)),
            flow=(FlowStep(place, step.op, step.module, mixed[0], step.dtype, "value", said=said),),
            fix=advise(place, "cast one of them, so that the program also runs without torch.compile", kind="cast"),
            title=f"{quoted(step.op)} of {both} runs only because it is compiled: eager refuses it",
        )


def _other(run: Run, region: Region) -> Iterator[Finding]:
    """Results whose dtype is not the one that eager gives."""
    for step, computed in _computed(region):
        place, name = graph.place_of(run.recording, step.place), quoted(step.op)
        said = f"the program says {step.dtype}; compiled code computes and returns {computed}"
        yield silent_finding(
            "DT207",
            Call(place, "forward", step.op, None, step.module),
            kind="other-dtype",
            culprit=_operand(0, f"result of {step.op}", computed, step.op, place),
            flow=(FlowStep(place, step.op, step.module, step.dtype, computed, "value", said=said),),
            fix=advise(place, f"cast the operands of {name} to {step.dtype} before it", kind="cast"),
            title=f"compiled {name} gives {computed} where eager gives {step.dtype}",
        )


def _fake_kernels(run: Run, region: Region) -> Iterator[Finding]:
    """Custom operators whose fake kernel says another dtype than the real one gives: the compiler believes the fake
    one, and what follows reads the bits of the wrong dtype."""
    for step in region.steps:
        if not step.real or not step.dtype or step.real == step.dtype:
            continue
        place, name = graph.place_of(run.recording, step.place), quoted(step.op)
        said = f"its fake kernel says {step.dtype}, its real one gives {step.real}"
        change = f"let the fake kernel of {name} (register_fake) return {step.real}, as its real one does"
        yield silent_finding(
            "DT207",
            Call(place, "forward", step.op, None, step.module),
            kind="fake-kernel",
            culprit=_operand(0, f"result of {step.op}", step.real, step.op, place),
            flow=(FlowStep(place, step.op, step.module, step.real, step.dtype, "value", said=said),),
            fix=advise(place, change, kind="cast"),
            title=f"compiled code takes the {step.real} result of {name} for {step.dtype}",
        )


def _computed(region: Region) -> Iterator[tuple[Step, str]]:
    """The calls of the program whose result has another dtype in compiled code."""
    written = {
        node.step: node.memory
        for made in region.graphs
        for node in made.nodes
        if node.step >= 0 and {node.memory, node.dtype} <= REAL and region.steps[node.step].dtype == node.dtype
    }
    for number, step in enumerate(region.steps):
        computed = written.get(number, step.computed)
        if step.dtype in REAL and computed in REAL and computed != step.dtype:
            yield step, computed


def _without_autocast(run: Run, region: Region) -> Iterator[Finding]:
    """Products that the forward keeps in float32 and the backward computes in 16 bits."""
    products: dict[str, dict[int, list[Node]]] = {"forward": {}, "backward": {}}
    for made in region.graphs:
        for node in made.nodes:
            if tagged(node.op, "matmul", "addmm", "convolution") and node.seq >= 0:
                products[made.phase].setdefault(node.seq, []).append(node)
    narrowed: dict[int, tuple[Node, Node]] = {}
    for seq, backward in products["backward"].items():
        forward = products["forward"].get(seq, [])
        narrow = next((n for n in backward if n.dtype in HALF), None)
        said = region.steps[forward[0].step].dtype if forward and forward[0].step >= 0 else ""
        # attention in 16 bits may be computed by products in float32 without anybody saying so
        if said in REAL - HALF and narrow is not None and not any(n.dtype in HALF for n in forward):
            narrowed.setdefault(forward[0].place, (forward[0], narrow))
    yield from (_narrowed(run, region, *pair) for pair in narrowed.values())


def _narrowed(run: Run, region: Region, wide: Node, narrow: Node) -> Finding:
    place = graph.place_of(run.recording, wide.place)
    name = region.steps[wide.step].op if wide.step >= 0 else base(wide.op)
    kept = f"the forward computes in {wide.dtype}"
    cast = f"its backward was compiled under the autocast around the region, and computes in {narrow.dtype}"
    return silent_finding(
        "DT406",
        Call(place, "backward", name, narrow.op, wide.module),
        culprit=_operand(0, f"result of {name}", wide.dtype, name, place),
        flow=(
            FlowStep(place, name, wide.module, wide.dtype, wide.dtype, "value", said=kept),
            FlowStep(place, name, wide.module, wide.dtype, narrow.dtype, "autocast", said=cast),
        ),
        fix=advise(place, _BACKWARD_OFF, kind="compile", others=("open the autocast inside the compiled function",)),
        title=f"the compiled backward of {quoted(name)} computes in {narrow.dtype}, its forward in {wide.dtype}",
    )


_BACKWARD_OFF = 'set torch._functorch.config.backward_pass_autocast = "off" before compiling'


def _operand(index: int, name: str, dtype: str, op: str, place: Place) -> Operand:
    return Operand(index, name, dtype, (), "", None, Origin("factory", None, op, place))
