"""What compiled code does otherwise than the program says, found from its graphs alone (DT206, DT207, DT406).

A kernel computes 16-bit numbers in float32 and rounds them where it writes them. Most values are nearer to the truth
for it. It is wrong where a program needs the rounding itself: where a number meets a rounded copy of itself, where its
own rounding error is computed, or where forward and backward decide by two versions of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import isinf

from .. import graph
from ..records import Finding, Fix, FlowStep, Operand, Origin, Place
from ..records.compiled import Node, Region, Step
from ..source import compiling
from ..tables.dtypes import HALF, REAL
from ..tables.english import listed, quoted
from ..tables.operators import JUMPS, base, tagged
from .advice import advise
from .case import short
from .compiled_flow import At, Flow
from .compiled_harm import ONCE, Harm, distance
from .run_facts import Run
from .silent_findings import At as Call
from .silent_findings import silent_finding

_COMPARES = "equal", "compare"


def find(run: Run) -> list[Finding]:
    """The findings of all regions; one for each kind and pair of lines."""
    found: dict[object, Finding] = {}
    kept: list[_Kept] = []
    near: list[str] = []
    """How far the results of regions are from float64."""
    for region in run.recording.regions:
        judged = _Judged(run, region)
        roundings = [judged.harm.judged(f) for f in judged.roundings()]
        others = [judged.harm.judged(f) for rule in _OF_DTYPES for f in rule(run, region)]
        for finding in (*roundings, *others, *judged.unexplained([*roundings, *others])):
            key = finding.code, finding.kind, finding.site.stack[:1], finding.culprit and finding.culprit.origin.place
            known = found.get(key)
            found[key] = replace(known, count=known.count + finding.count) if known is not None else finding
        if not roundings:
            kept += judged.kept
            near += [judged.harm.near()] if judged.kept and judged.harm.known else []
    return [*found.values(), *_kept_wide(kept, near)]


@dataclass(frozen=True)
class _Kept:
    """A 16-bit value that is rounded nowhere."""

    place: Place
    step: Step | None
    node: Node
    module: str
    decides: bool
    """Whether a comparison or a rounding takes it so."""


_ADVICE = 'compile with options={"emulate_precision_casts": True}'


class _Judged:
    """One region, and what its kernels leave out."""

    def __init__(self, run: Run, region: Region) -> None:
        self.run = run
        self.region = region
        self.flow = Flow(region)
        self.harm = Harm(region)
        self.told: set[At] = set()
        """Nodes that a finding names."""

    def roundings(self) -> Iterator[Finding]:
        yield from self._meetings()
        yield from self._beyond()
        yield from self._errors()
        yield from self._twice()
        yield from self._round_trips()
        yield from self._overflows()

    # ------------------------------------------------------------ the rounded copy

    def _meetings(self) -> Iterator[Finding]:
        """Comparisons of a value with a rounded copy of itself, or with one that was chosen from such copies."""
        for at in self.flow:
            node = self.flow.node(at)
            early = list(self.flow.unrounded(at))
            if not tagged(node.op, *_COMPARES) or not early:
                continue
            for kept in [k for _, k in early]:
                others = [o for o in self.flow.above(at) if o not in {a for a, _ in early}]
                copies = [o for o in others if self.flow.node(kept).value in self.flow.shown(o)]
                if copies and self._tell(at, kept):
                    dtype = self.flow.node(kept).dtype
                    title = f"compiled code compares {dtype} values before their rounding with a rounded copy of them"
                    note = f"a value that {dtype} cannot hold equals no {dtype} number, not even its own copy"
                    yield self._finding("kept-wide-discontinuous", at, kept, title, note, copies[0])

    def _beyond(self) -> Iterator[Finding]:
        """Functions that end or jump where a value equals the largest or smallest of its kind, which was rounded."""
        for at in self.flow:
            if not tagged(self.flow.node(at).op, "difference", "divide"):
                continue
            for above, kept in self.flow.unrounded(at):
                copies = [o for o in self.flow.above(at) if self.flow.node(kept).value in self.flow.shown(o)]
                for copy in (o for o in copies if o != above):
                    ends = [end for end, less in self.flow.edges(at) if self._ends(at, copy, end, less)]
                    if ends and self._tell(ends[0], kept):
                        dtype, name = self.flow.node(kept).dtype, quoted(self._name(ends[0]))
                        title = f"compiled {name} gets {dtype} values before their rounding, beyond their own bound"
                        note = f"they lie beyond the rounded largest or smallest of them, where {name} ends or jumps"
                        yield self._finding("kept-wide-discontinuous", ends[0], kept, title, note, copy)

    def _ends(self, at: At, copy: At, end: At, less: bool) -> bool:
        """Whether a function ends or jumps where a value meets its bound: at a quotient of one, a difference of
        zero."""
        op, bounds = self.flow.node(end).op, [*self.flow.bounds(copy)]
        if not bounds:
            return False
        if tagged(self.flow.node(at).op, "divide"):
            return tagged(op, "whole") or tagged(op, "root") == less
        least = ("max" in bounds[0]) == (self.flow.above(at)[0] == copy)
        return not less and (tagged(op, "root") and least or tagged(op, "whole") and least == (base(op) == "floor"))

    def _errors(self) -> Iterator[Finding]:
        """Differences between a sum, or a narrowed value, and what it was made from, or between a result and the same
        in a wider dtype: the error of its rounding."""
        for at in self.flow:
            node = self.flow.node(at)
            if not tagged(node.op, "sum"):
                continue
            for above, kept in self.flow.unrounded(at):
                made = self.flow.node(kept)
                sources = {v for term in self.flow.above(kept) for v in self.flow.shown(term)}
                others = [o for o in self.flow.above(at) if o != above]
                parts = tagged(made.op, "sum", "cast") and any(self.flow.shown(o) & sources for o in others)
                again = any(self.flow.is_same_but_wider(o, kept) for o in others)
                if (parts or again) and self.flow.is_rounded(kept) and self._tell(at, kept):
                    title = (
                        f"compiled code computes the error of a rounding to {made.dtype} from values not yet rounded"
                    )
                    note = f"the {made.dtype} result is stored rounded, and its error is then computed as zero"
                    yield self._finding("elided-cast", at, kept, title, note)

    def _twice(self) -> Iterator[Finding]:
        """Decisions that are made from a value before its rounding, and again from the rounded one."""
        decided: dict[int, list[At]] = {}
        for at in self.flow:
            node = self.flow.node(at)
            if tagged(node.op, *JUMPS) and not (tagged(node.op, *_COMPARES) and node.scalars[:1] == (0.0,)):
                decided.setdefault(node.value, []).append(at)
        for places in decided.values():
            early = {at: [k for _, k in self.flow.unrounded(at)] for at in places}
            late = [at for at, kept in early.items() if not kept]
            for at, kept in early.items():
                if kept and late and self._tell(at, kept[0]):
                    dtype = self.flow.node(kept[0]).dtype
                    again = "the backward" if self._phase(late[0]) != self._phase(at) else "another kernel"
                    name = quoted(self._name(at))
                    title = f"compiled {name} decides by {dtype} values before their rounding, {again} by rounded ones"
                    note = "so the two decide differently for some elements"
                    yield self._finding("saved-not-used", at, kept[0], title, note)

    def _round_trips(self) -> Iterator[Finding]:
        """Casts to 16 bits and back in one call of a function, which only round: the program asks for that."""
        for at in self.flow:
            node, step = self.flow.node(at), self._step(at)
            if not tagged(node.op, "cast") or node.dtype not in HALF or step is None or not step.casts or node.memory:
                continue
            users = [u for u in self.flow if u.graph == at.graph and at in self.flow.above(u)]
            back = [u for u in users if self._casts_back(at, u)]
            if back and back == users and self._tell(back[0], at):
                title = f"compiled code leaves out a cast to {node.dtype} and back, which only rounds"
                note = f"{node.dtype} is only named in the kernel: what goes on is the value that was not rounded"
                yield self._finding("elided-cast", back[0], at, title, note)

    def _casts_back(self, at: At, user: At) -> bool:
        taken, step = self.flow.node(user), self._step(user)
        early = any(kept == at for _, kept in self.flow.unrounded(user)) or bool(taken.unrounded)
        same = _goes_on(self._place(at), self._place(user))
        return tagged(taken.op, "cast") and taken.dtype not in HALF and early and same and bool(step and step.casts)

    def _overflows(self) -> Iterator[Finding]:
        """Questions for infinities that are asked before the rounding that makes them, where the call returned some."""
        value = self.run.values.get(self.region.call)
        if value is None or not value.made:
            return
        stored = [self.flow.shown(at) for at in self.flow if self.flow.node(at).ends]
        for at in self.flow:
            node = self.flow.node(at)
            if not tagged(node.op, "check") and not (tagged(node.op, *_COMPARES) and isinf(sum(node.scalars[:1]))):
                continue
            for kept in [k for _, k in self.flow.unrounded(at)]:
                made = self.flow.node(kept)
                if made.dtype == "float16" and any(made.value in s for s in stored) and self._tell(at, kept):
                    title = "compiled code asks for infinities before float16 makes them, and returns some"
                    note = "a product of more than 65504 is finite in the kernel, and infinite where it is stored"
                    yield self._finding("kept-wide-discontinuous", at, kept, title, note)

    # ------------------------------------------------------------ what it costs

    def unexplained(self, known: list[Finding]) -> Iterator[Finding]:
        """Results that are wrong only compiled, where no finding says why."""
        worst = self.harm.worst
        if worst is None or any(f.severity == "warning" for f in known):
            return
        node = worst.node
        made = next(at for at in self.flow if self.flow.node(at) is node)
        line, name = self._place(made), self._name(made)
        title = f"compiled code computes {worst.name} otherwise than eager, and further from float64"
        said = f"{worst.name} comes from here"
        yield silent_finding(
            "DT206",
            Call(line, worst.graph.phase, name, node.op, _module(self.run, self.region, node.module)),
            kind="measured",
            culprit=_result(name, node.dtype, line),
            flow=(FlowStep(line, name, node.module, node.dtype, node.dtype, "value", said=said),),
            fix=self._fix(node.dtype, line, "measured", name),
            title=title,
            notes=(f"{ONCE}, {distance(worst)}",),
        )

    # ------------------------------------------------------------ what stays unrounded

    @property
    def kept(self) -> list[_Kept]:
        """The 16-bit values that this region rounds nowhere."""
        users: dict[At, list[At]] = {}
        for at in self.flow:
            for _, kept in self.flow.unrounded(at):
                users.setdefault(kept, []).append(at)
        return [
            _Kept(self._place(at), self._step(at), node, _module(self.run, self.region, node.module), decides)
            for at, early in users.items()
            for node, decides in [(self.flow.node(at), any(map(self._jumps, early)))]
            if not self.flow.is_rounded(at)
        ]

    def _jumps(self, at: At) -> bool:
        node = self.flow.node(at)
        return tagged(node.op, *JUMPS) and node.scalars[:1] != (0.0,)

    # ------------------------------------------------------------ the finding

    def _tell(self, at: At, kept: At) -> bool:
        """Whether this is news: a value that one finding names already has its line there."""
        news = kept not in self.told
        self.told |= {kept, at}
        return news

    def _phase(self, at: At) -> str:
        return self.region.graphs[at.graph].phase

    def _place(self, at: At) -> Place:
        return graph.place_of(self.run.recording, self.flow.node(at).place)

    def _step(self, at: At) -> Step | None:
        """The program's call that a node belongs to; for a backward node that of its forward node."""
        number = self.flow.step(at)
        return self.region.steps[number] if number >= 0 else None

    def _name(self, at: At) -> str:
        step = self._step(at)
        return step.op if step is not None else base(self.flow.node(at).op)

    def _finding(self, kind: str, at: At, kept: At, title: str, note: str, copy: At | None = None) -> Finding:
        node, made = self.flow.node(at), self.flow.node(kept)
        site, born, name = self._place(at), self._place(kept), self._name(kept)
        culprit = _result(name, made.dtype, born)
        says = f"the program says {made.dtype}; the kernel keeps the result in float32"
        flow = [FlowStep(born, name, made.module, made.dtype, "float32", "value", said=says)]
        if copy is not None and self._place(copy) not in (site, born):
            there = self._place(copy)
            flow.append(FlowStep(there, self._name(copy), "", made.dtype, made.dtype, "value", said="rounded here"))
        met = "takes it before it is rounded" + (" (backward)" if self._phase(at) == "backward" else "")
        flow.append(FlowStep(site, self._name(at), node.module, "float32", node.dtype, "value", said=met))
        return silent_finding(
            "DT206",
            Call(site, self._phase(at), self._name(at), node.op, _module(self.run, self.region, node.module)),
            kind=kind,
            culprit=culprit,
            flow=tuple(flow),
            fix=self._fix(made.dtype, born, kind, name),
            title=title,
            notes=(note,),
        )

    def _fix(self, dtype: str, born: Place, kind: str, name: str) -> Fix:
        recording = self.run.recording
        if name.startswith("foreach_"):  # the compiler does not emulate roundings in operators over lists
            left = compiling.leaving_out(recording.text, born, (name,))
            change = f"leave {quoted(name)} out of the compiled code, with torch.compiler.disable"
            return advise(born, change, f"its results are then rounded to {dtype}", edits=left, kind="compile")
        files = [f.file for p in recording.places for f in p.stack if f.user]
        edit = compiling.emulating(recording.text, files, self.region.name)
        wider = f"cast the value to float32 at {short(born)}, where it is made, so that no copy of it is rounded"
        why = f"its kernels then round to {dtype} where eager does"
        others = () if kind == "elided-cast" else (wider,)
        return advise(born, _ADVICE, why, edits=edit, kind="compile", others=others)


def _module(run: Run, region: Region, path: str) -> str:
    """The module of a path in a compiled region, by its full name; of one that nothing called outside, the path."""
    around = run.ops[region.call].module if 0 <= region.call < len(run.ops) else ""
    return graph.module_below(run.module_names, around, path) or path


def _goes_on(place: Place, later: Place) -> bool:
    """Whether a place is in the same call of a function as an earlier one. In a loop it may be in another call, but
    then it need not be below."""
    if not place.stack or not later.stack or place.stack[1:] != later.stack[1:]:
        return False
    one, other = place.stack[0], later.stack[0]
    return (one.file, one.function) == (other.file, other.function) and one.line <= other.line


_LINES = 4
"""Lines that a note names."""


def _kept_wide(kept: Iterable[_Kept], near: list[str]) -> Iterator[Finding]:
    """One note for the whole run: the 16-bit values that compiled code never rounds."""
    kept = list(kept)
    if not kept:
        return
    lines: dict[Place, int] = {}
    for k in kept:
        if k.place.stack:
            lines[k.place] = lines.get(k.place, 0) + 1
    if not lines:
        return
    most = sorted(lines, key=lambda place: -lines[place])
    first = next(k for k in kept if k.place == most[0])
    dtypes = listed(sorted({k.node.dtype for k in kept}))
    name = first.step.op if first.step is not None else base(first.node.op)
    notes = [f"{len(kept)} results at {len(lines)} line{'s' if len(lines) > 1 else ''}; most at {_at(most[:_LINES])}"]
    decided = list(dict.fromkeys(k.place for k in kept if k.decides and k.place.stack))
    if decided:
        some = _at(decided[:_LINES])
        notes.append(f"comparisons and roundings take those of {some}: ties may fall otherwise than in eager")
    if near:
        notes.append(f"{ONCE}, {max(near, key=near.count)}")
    said = "computed in float32, and used in the same kernel before it is rounded"
    yield silent_finding(
        "DT206",
        Call(most[0], "forward", name, first.node.op, first.module),
        kind="kept-wide",
        severity="note",
        culprit=_result(name, first.node.dtype, most[0]),
        flow=(FlowStep(most[0], name, first.node.module, first.node.dtype, "float32", "value", said=said),),
        fix=None,
        count=len(kept),
        title=f"compiled code never rounds some {dtypes} results: its kernels keep them in float32",
        notes=notes,
    )


def _at(places: Iterable[Place]) -> str:
    return listed([short(p) for p in places])


# ---------------------------------------------------------------- dtypes that eager does not give


def _accepted(run: Run, region: Region) -> Iterator[Finding]:
    """Calls that eager refuses and compiled code computes."""
    for step in region.steps:
        if not step.refused or region.call < 0:  # no call returned: that compiled code computes it is not known
            continue
        mixed = [d for d in dict.fromkeys(step.given) if d in REAL]
        both, change = listed(mixed), "cast one of them, so that the program also runs without torch.compile"
        computed = f"computes it in {step.dtype}" if step.dtype else "computes it"
        said = f"{both} meet: eager refuses this, the compiler {computed}"
        title = f"{quoted(step.op)} of {both} runs only because it is compiled: eager refuses it"
        found = _of_step(run, region, step, "accepted-mismatch", (mixed[0], step.dtype, said), change, title)
        one = replace(_result(step.op, mixed[0], found.site), name="operand")
        operands = tuple(replace(one, index=n, dtype=d) for n, d in enumerate(mixed))
        yield replace(found, severity="note", operands=operands, culprit=operands[0])


def _other(run: Run, region: Region) -> Iterator[Finding]:
    """Results whose dtype is not the one that eager gives."""
    for last, computed in _computed(region):
        step = _began(region, last, computed)
        name = quoted(step.op)
        said = f"the program says {step.dtype}; compiled code computes and returns {computed}"
        change = f"cast the operands of {name} to {step.dtype} before it"
        if tagged(step.op, "takes_dtype"):
            change = f"pass dtype=torch.{step.dtype} to {name}"
        title = f"compiled {name} gives {computed} where eager gives {step.dtype}"
        yield _of_step(run, region, step, "other-dtype", (step.dtype, computed, said), change, title, computed)


def _fake_kernels(run: Run, region: Region) -> Iterator[Finding]:
    """Custom operators whose fake kernel says another dtype than the real one gives: the compiler believes the fake
    one, and what follows reads the bits of the wrong dtype."""
    for step in region.steps:
        if step.real and step.dtype and step.real != step.dtype:
            name = quoted(step.op)
            said = f"its fake kernel says {step.dtype}, its real one gives {step.real}"
            change = f"let the fake kernel of {name} (register_fake) return {step.real}, as its real one does"
            title = f"compiled code takes the {step.real} result of {name} for {step.dtype}"
            yield _of_step(run, region, step, "fake-kernel", (step.real, step.dtype, said), change, title, step.real)


def _of_step(
    run: Run, region: Region, step: Step, kind: str, flow: tuple[str, str, str], change: str, title: str, made: str = ""
) -> Finding:
    """A finding at one call of the program. flow: the dtypes before and after, and what is said of them. made: the
    dtype of its result."""
    place = graph.place_of(run.recording, step.place)
    return silent_finding(
        "DT207",
        Call(place, "forward", step.op, step.refused or None, _module(run, region, step.module)),
        kind=kind,
        culprit=_result(step.op, made, place),
        flow=(FlowStep(place, step.op, step.module, *flow[:2], "value", said=flow[2]),),
        fix=advise(place, change, kind="cast"),
        title=title,
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
        if step.dtype in REAL and computed and computed != step.dtype:
            yield step, computed


def _began(region: Region, step: Step, computed: str) -> Step:
    """The first call of those that lead to one whose results have another dtype in compiled code."""
    for made in region.graphs:
        nodes = [n for n in made.nodes if n.step >= 0 and region.steps[n.step] is step and n.dtype == computed]
        for above in (made.nodes[i] for i in (nodes[-1].inputs if nodes else ())):
            before = region.steps[above.step] if above.step >= 0 else step
            if before is not step and above.dtype == computed and before.dtype == step.dtype:
                return _began(region, before, computed)
    return step


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
        Call(place, "backward", name, narrow.op, _module(run, region, wide.module)),
        culprit=_result(name, wide.dtype, place),
        flow=(
            FlowStep(place, name, wide.module, wide.dtype, wide.dtype, "value", said=kept),
            FlowStep(place, name, wide.module, wide.dtype, narrow.dtype, "autocast", said=cast),
        ),
        fix=advise(place, _BACKWARD_OFF, kind="compile", others=("open the autocast inside the compiled function",)),
        title=f"the compiled backward of {quoted(name)} computes in {narrow.dtype}, its forward in {wide.dtype}",
    )


_BACKWARD_OFF = 'set torch._functorch.config.backward_pass_autocast = "off" before compiling'


_OF_DTYPES = (_accepted, _other, _fake_kernels, _without_autocast)


def _result(op: str, dtype: str, place: Place) -> Operand:
    return Operand(0, f"result of {op}", dtype, (), "", None, Origin("factory", None, op, place))
