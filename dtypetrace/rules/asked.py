"""What was asked for and did not come: a declaration that a cast overrode (DT407), a checkpoint after which a run is
another one (DT408), an autocast region that switched another one off (DT409), a setting that does not decide what runs
(DT410), gradients that are added up (DT309) and steps that are counted (DT505) in 16 bits.

Each rule compares rows that the receipt shows, and says nothing where they agree.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import prod

from .. import graph
from ..records import FORWARD, Declared, Finding, FlowStep, Op, Operand, Origin, Parameter, Place, ReceiptRow, Transfer
from ..source import optimizers, regions, settings
from ..tables.dtypes import DTYPES, HALF, bytes_of, narrower
from ..tables.english import quoted
from ..tables.operators import flops, name_of
from . import master_weights, receipt, titles
from .advice import advise
from .run_facts import Run, quantity
from .silent_findings import At, silent_finding
from .training import MOST_SHOWN, birth

_MANY_BATCHES = 32
"""Sums of so many rounded numbers are wrong in the last two of bfloat16's eight bits."""
_NO_AUTOCAST = frozenset({"float32", "float64"})
"""Dtypes that autocast takes on no device: it warns, and is off."""


def find(run: Run) -> Iterator[Finding]:
    """The findings of this family."""
    yield from overridden(run)
    yield from _checkpoints(run)
    yield from _switched_off(run)
    yield from _settings(run)
    yield from _added_up(run)
    yield from _counted(run)


def _given(origin: Origin, place: Place) -> Place:
    return origin.place if origin.place.stack else place


# ---------------------------------------------------------------- declarations


def overridden(run: Run) -> Iterator[Finding]:
    """DT407: parameters that a class keeps in a dtype and that something cast to another one."""
    groups: dict[tuple[object, ...], list[tuple[Parameter, Declared, Origin]]] = defaultdict(list)
    said = receipt.declarations(run.recording)
    for p in run.recording.parameters:
        asked = receipt.asked_of(said, p)
        if asked is None or not asked.names or p.dtype in (asked.dtype, run.gathered):
            continue
        origin = graph.origin(run.recording, p.event, p.dtype, p.name)
        groups[asked.by, p.dtype, origin.place.stack[:3]].append((p, asked, origin))
    for members in groups.values():
        p, asked, origin = members[0]
        used = next((op for op in run.ops if _uses(op, p)), None)
        site = run.place(used) if used is not None else origin.place
        named = titles.shared([p.name], len(members))
        where = f" ({optimizers.short(asked.file, asked.line)})" if asked.file else ""
        used_here = f"{p.dtype} weights, which {asked.by} keeps in {asked.dtype}, are used here"
        at = At.of(used, site) if used is not None else At(site, "other", "")
        ends = FlowStep(site, at.op, at.module, p.dtype, p.dtype, "value", said=used_here)
        operands = tuple(
            Operand(n, q.name, q.dtype, (), "", q.holder, o) for n, (q, _, o) in enumerate(members[:MOST_SHOWN])
        )
        yield silent_finding(
            "DT407",
            at,
            operands=operands,
            flow=(*birth(run.recording, p.event, origin, f"{named} become {p.dtype} here"), ends),
            fix=advise(
                _given(origin, site),
                f"leave {named} in {asked.dtype}",
                f"from_pretrained(dtype=torch.{p.dtype}) does, a cast of the whole model does not",
                kind="plan",
            ),
            count=len(members),
            title=f"{named} are {p.dtype}, and {asked.by} keeps them in {asked.dtype}",
            weights=[q.name for q, *_ in members],
            notes=(f"declared by {asked.by}{where} for {', '.join(asked.names)}",),
        )


def _uses(op: Op, p: Parameter) -> bool:
    """Whether an op is in the parameter's module and takes one of its kind: those that were cast have no name there."""
    held = any((i.holder, i.dtype) == (p.holder, p.dtype) for i in op.inputs)
    return held and op.phase == "forward" and op.module == p.name.rpartition(".")[0]


# ---------------------------------------------------------------- checkpoints


def _loaded_state(run: Run) -> Iterator[Finding]:
    """DT408: an optimizer's state that loading cast to another dtype, and that is still of it in the next steps."""
    recording = run.recording
    groups: dict[tuple[object, ...], list[Transfer]] = defaultdict(list)
    for t in recording.transfers:
        if t.kind == "state loaded" and t.source != t.dtype and t.size > t.tensors and _still(run, t):
            groups[t.place, t.source, t.dtype].append(t)
    for (_, source, dtype), members in groups.items():
        site, first = graph.place_of(recording, members[0].place), members[0]
        names = ", ".join(t.group for t in members)
        before, after = (sum(t.size for t in members) * bytes_of(d) for d in (str(source), str(dtype)))
        grows = after > before
        why = "the next step goes on from other numbers than the last one left"
        if grows:
            why = f"it takes {quantity(after, 'B')} instead of {quantity(before, 'B')} from then on"
        said = f"{first.optimizer}'s state was saved as {source}, and loading makes it {dtype}"
        yield silent_finding(
            "DT408",
            At(site, "other", "load_state_dict"),
            kind="promotion" if grows else "downcast",
            culprit=Operand(0, names, str(dtype), (), "", "state", Origin("load", None, "load_state_dict", site)),
            flow=(FlowStep(site, "load_state_dict", "", str(source), str(dtype), "cast", said=said),),
            fix=advise(
                site,
                f"cast the state back to {source} after it is loaded",
                "load_state_dict casts it to the dtype of the weights; a hook given to "
                "register_load_state_dict_post_hook can undo that",
                kind="plan",
            ),
            title=f"loading makes {first.optimizer}'s {names} {dtype}, saved as {source}",
            notes=(why,),
        )


def _still(run: Run, t: Transfer) -> bool:
    """Whether the state stayed as it was loaded, and the weights in the file were not of its dtype, too: then a whole
    run was converted. Where steps before had it as it is now, it was only stored narrow."""
    held = [s for s in run.recording.state if (s.optimizer, s.name) == (t.optimizer, t.group)]
    if held and held[-1].dtype != t.dtype:
        return False
    trained = {s.dtype for s in held if s.event != t.event}
    if trained == {t.dtype} and narrower(t.source, t.dtype):
        return False
    weights = (o for o in run.recording.transfers if o.kind == "read" and not o.group.startswith("optimizer "))
    return narrower(t.dtype, t.source) or all(o.source != t.source for o in weights)


def _checkpoints(run: Run) -> Iterator[Finding]:
    """DT408: a checkpoint to go on from that holds weights or state narrower than those that train, or that narrower
    weights are read from; else a load that changed the state: what was written so is read so."""
    for kind in ("written", "read"):
        groups: dict[tuple[object, ...], list[tuple[Transfer, str]]] = defaultdict(list)
        for t in run.recording.transfers:
            trains = _trains(run, t) if t.kind == kind and (_resumes(run, t) or _goes_on(run, t)) else ""
            if trains:
                groups[t.place, t.source, trains, _of_state(t)].append((t, trains))
        if groups:
            yield from (_unlike(run, [t for t, _ in members], members[0][1]) for members in groups.values())
            return
    yield from _loaded_state(run)


def _goes_on(run: Run, t: Transfer) -> bool:
    """Whether the run itself trains on, again and again, what it has read back from such a file: each time, the weights
    lose what they have gained since less than a rounding."""
    events = run.recording.events
    for op in run.ops:
        loads = (run.ops[i.producer] for i in op.inputs if i.holder == "parameter" and i.producer >= 0)
        for load in loads if op.phase == "optimizer" else ():
            taken = load.inputs[1].event if name_of(load) == "copy" and len(load.inputs) > 1 else -1
            again = taken >= 0 and events[taken].how == "load" and load.count > t.tensors
            if again and events[taken].to == t.source and graph.written_before(run.recording, taken) >= 0:
                return True
    return False


def _resumes(run: Run, t: Transfer) -> bool:
    """Whether a checkpoint is there to go on from: an optimizer's state is in it, or in a file of its own beside it."""
    return t.resumes or any(o.resumes and _together(run, t, o) for o in run.recording.transfers)


def _together(run: Run, t: Transfer, other: Transfer) -> bool:
    """Whether one call of a function of the program writes or reads both, itself or in functions that it calls."""
    stacks = ([f for f in graph.place_of(run.recording, one.place).stack if f.user] for one in (t, other))
    shorter, longer = sorted(stacks, key=len)
    if t.kind != other.kind or not shorter:
        return False
    level, made = len(longer) - len(shorter), shorter[0]
    called = (longer[level].file, longer[level].function) == (made.file, made.function)
    return called and longer[level + 1 :] == shorter[1:]


def _of_state(t: Transfer) -> bool:
    return t.group.startswith("optimizer ")


def _trains(run: Run, t: Transfer) -> str:
    """The dtype in which a run has what a checkpoint has in a narrower one, or what it reads from one and rounds; empty
    where it has it so, too, or trains nothing."""
    recording, name = run.recording, t.group.partition(" ")[2]
    kept = [s.dtype for s in recording.state if _of_state(t) and s.name == name and s.size > s.tensors]
    weights = None if _of_state(t) else receipt.trained_as(recording, t.names)
    trains = kept[-1] if kept else weights.dtype if weights is not None else ""
    others = [o for o in recording.transfers if o is not t and (o.place == t.place or _together(run, t, o))]
    copy = not _of_state(t) and any(_same(o, t, trains) for o in others)
    unlike = trains and recording.updates and (narrower(t.source, trains) or _rounds(run, t, trains))
    return trains if unlike and not copy and t.source not in kept else ""


def _rounds(run: Run, t: Transfer, trains: str) -> bool:
    """Whether the weights of a checkpoint to go on from are read into narrower ones, and no copy of them stays wide."""
    wide = t.kind == "read" and not _of_state(t) and narrower(trains, t.source) and _resumes(run, t)
    return wide and any(u.dtype == trains for u in run.recording.updates) and not master_weights.copy(run.recording)[1]


def _unlike(run: Run, members: list[Transfer], trains: str) -> Finding:
    recording, t, state = run.recording, members[0], _of_state(members[0])
    site = graph.place_of(recording, t.place)
    names = " and ".join(quoted(m.group.partition(" ")[2] if state else m.group) for m in members)
    what = f"the optimizer's {names}" if state else f"the weights in {names}"
    op = "save" if t.kind == "written" else "load"
    origin = graph.origin(recording, t.event, trains)
    if origin.kind != "cast":  # what is read was cast in another run
        origin = Origin("cast", None, None, site)
    born = birth(recording, t.event, origin, f"{what} become {t.source} here") if origin.place is not site else ()
    note = "a run that goes on from this checkpoint does not start with the numbers that this one had"
    advice = f"write {trains}", f"a {t.source} copy can have a file of its own"
    weights = receipt.trained_as(recording, t.names) if narrower(trains, t.source) else None
    if weights is not None:
        origin = graph.origin(recording, weights.event, trains, weights.name)
        born = birth(recording, weights.event, origin, f"the weights become {trains} here")
        advice = f"train {t.source} weights", f"autocast can compute in {trains}"
        note = "the run goes on from rounded weights, not from the numbers that were saved"
    ends = FlowStep(site, op, "", trains, t.source, "cast", said=f"{what}: {t.source} here, {trains} in the run")
    return silent_finding(
        "DT408",
        At(site, "other", op),
        kind="downcast",
        culprit=Operand(0, what, t.source, (), "", "state" if state else "parameter", origin),
        flow=(*born, ends),
        fix=advise(_given(origin, site), *advice, kind="plan"),
        title=f"a checkpoint to go on from has {what} in {t.source}; the run has them in {trains}",
        notes=(note,),
    )


def _same(other: Transfer, t: Transfer, trains: str) -> bool:
    """Whether another group of the checkpoint has the same tensors in the dtype that trains: this one is a copy."""
    pairs = ((f".{a}", f".{b}") for a in t.names for b in other.names) if other.source == trains else ()
    return any(a.endswith(b) or b.endswith(a) for a, b in pairs)


# ---------------------------------------------------------------- autocast


def _switched_off(run: Run) -> Iterator[Finding]:
    """DT409: an autocast region that names a dtype which autocast does not take, and computes in another one."""
    seen: set[object] = set()
    for op in run.ops:
        if op.autocast or op.phase not in FORWARD or not flops(op) or op.place in seen:
            continue
        seen.add(op.place)
        region = next(regions.around(run.recording.text, run.place(op)), None)
        named = _named_dtype(region[1]) if region is not None else ""
        if region is None or named not in _NO_AUTOCAST or named == op.outputs[0] or region[0].stack[:1] in seen:
            continue
        seen.add(region[0].stack[:1])
        at, dtype = region[0], op.outputs[0]
        said = f"autocast does not take {named}: it is off here, and so is a region around it"
        computes = f"{quoted(op.op)} computes in {dtype}"
        yield silent_finding(
            "DT409",
            At.of(op, run.place(op)),
            culprit=Operand(0, "autocast", named, (), op.device, None, Origin("autocast", None, None, at)),
            flow=(
                FlowStep(at, "autocast", op.module, dtype, dtype, "value", said=said),
                FlowStep(run.place(op), op.op, op.module, dtype, dtype, "value", said=computes),
            ),
            fix=advise(at, f"cast what is to be computed in {named}", "a region casts to 16 bits only", kind="plan"),
            count=op.count,
            title=f"an autocast region asks for {named}, which autocast does not take: {computes}",
        )


def _named_dtype(expression: ast.expr) -> str:
    """The dtype that an ``autocast(...)`` expression names; empty where it names none, or is off anyway."""
    if not isinstance(expression, ast.Call):
        return ""
    given = {k.arg: k.value for k in expression.keywords}
    if "enabled" in given:
        return ""
    named = given.get("dtype") or (expression.args[1] if len(expression.args) > 1 else None)
    return named.attr if isinstance(named, ast.Attribute) else ""


# ---------------------------------------------------------------- settings


def _settings(run: Run) -> Iterator[Finding]:
    """DT410: what computes or is reduced in another dtype than a trainer, a policy or a configuration was told."""
    rows = [row for row in receipt.rows(run.recording) if row.part in ("compute", "reduction")]
    shown: set[str] = set()
    for row in rows:
        if row.cause is None or row.by in shown or not _harms(run, row, rows):
            continue
        shown.add(row.by)
        site, written = row.cause.place, _written(run, row.by)
        asks = FlowStep(written, "setting", "", row.asked, row.asked, "value", said=f"{row.by} asks for {row.asked}")
        does = _DOES.get(row.what, f"the {row.what} computes in")
        ends = FlowStep(site, row.cause.op or "", "", row.dtype, row.dtype, "value", said=f"{does} {row.dtype} here")
        advice = _BY_HAND if row.part == "reduction" else _NARROW if narrower(row.dtype, row.asked) else _UNUSED
        yield silent_finding(
            "DT410",
            At(site, "forward" if row.part == "compute" else "other", row.cause.op or ""),
            culprit=Operand(0, row.what, row.dtype, (), "", None, row.cause),
            flow=(*((asks,) if written.stack else ()), ends),
            fix=advise(site, *advice, kind="plan"),
            count=row.count,
            title=f"{row.by} asks for {row.asked}, and {does} {row.dtype}",
        )


_DOES = {"matmuls": "matmuls compute in", "gradients": "gradients are reduced in"}


def _harms(run: Run, row: ReceiptRow, rows: Iterable[ReceiptRow]) -> bool:
    """Whether a row is not what was asked for. What was asked of all products may come in some of a run's models, and
    in runs that train; accelerate and Lightning leave float16 out on a CPU. What was asked of a part or of a reduction
    must not be narrower."""
    of_all = any(d.by == row.by and not d.names for d in run.recording.declared) and row.part == "compute"
    if not row.differs or not of_all:
        return row.differs and row.by != "autocast" and narrower(row.dtype, row.asked)
    trains = any(u.steps or u.written for u in run.recording.updates)
    came = any(other.by == row.by and not other.differs for other in rows)
    return trains and not came and (row.asked != "float16" or any(op.device == "cuda" for op in run.ops))


_UNUSED = (
    "let the setting reach what runs here",
    "a trainer computes so in the model that it prepared, and only in its own calls",
)
_NARROW = "turn autocast off around it, and cast its input", ""
_BY_HAND = "reduce them in the dtype that the policy names", "sums of rounded gradients differ with the number of ranks"


def _written(run: Run, by: str) -> Place:
    """The program's line that tells a setting; of a policy, the one that makes it."""
    frames = [frame for place in run.recording.places for frame in place.stack if frame.user]
    # of a class of its own, perhaps: then by the keyword alone
    names: tuple[str, ...] = (by, by.replace(".", "("), f"({re.split(r'[(.]', by)[-1]}")
    if by.isidentifier():
        names = ("MixedPrecisionPolicy(reduce_dtype=", "MixedPrecision(reduce_dtype=", by)
    found = (settings.written(run.recording.text, frames, name) for name in names)
    return next((place for place in found if place is not None), graph.NOWHERE)


# ---------------------------------------------------------------- gradients


def _added_up(run: Run) -> Iterator[Finding]:
    """DT309: gradients of many micro-batches are added up in 16 bits."""
    steps = int(run.recording.meta.get("steps", 0))
    adds = [op for op in run.ops if _accumulates(op)]
    for dtype in dict.fromkeys(op.outputs[0] for op in adds):
        of_dtype = [op for op in adds if op.outputs[0] == dtype]
        trained = sum(p.trained and p.holder == "parameter" and p.dtype == dtype for p in run.recording.parameters)
        batches = 1 + sum(op.count for op in of_dtype) // max(1, steps * trained)
        if not steps or not trained or batches < _MANY_BATCHES:
            continue
        op = max(of_dtype, key=lambda o: o.count)
        site, weights = run.place(op), next(p for p in run.recording.parameters if p.trained and p.dtype == dtype)
        origin = graph.origin(run.recording, weights.event, dtype, weights.name)
        said = f"the {dtype} gradients of {batches} micro-batches are added up here"
        ends = FlowStep(site, "backward", "", dtype, dtype, "value", said=said)
        smallest = DTYPES[dtype].rounding
        yield silent_finding(
            "DT309",
            At(site, "backward", "backward", op.aten),
            culprit=Operand(0, weights.name, dtype, (), op.device, "parameter", origin),
            flow=(*birth(run.recording, weights.event, origin, f"the weights are {dtype}, and so are gradients"), ends),
            fix=advise(
                _given(origin, site),
                "keep the trained weights in float32",
                f"autocast can compute in {dtype}, and gradients are then added up in float32",
                kind="plan",
                others=("add them up in float32 tensors of the program's own",),
            ),
            count=sum(o.count for o in of_dtype),
            title=f"gradients of {batches} micro-batches are added up in {dtype}",
            notes=(f"a gradient smaller than {smallest:.1%} of the sum so far leaves no trace in it",),
        )


def _accumulates(op: Op) -> bool:
    """Whether an op is the engine's addition to a gradient that is there already."""
    added = op.phase == "backward" and op.of < 0 and not op.module and op.aten.startswith("add_.")
    return added and op.outputs[:1] != () and op.outputs[0] in HALF and len(op.inputs) > 1


# ---------------------------------------------------------------- the optimizer's counters


def _counted(run: Run) -> Iterator[Finding]:
    """DT505: single numbers in an optimizer's state that its steps add to, in 16 bits."""
    counts = [op for op in run.ops if op.phase == "optimizer" and op.aten.startswith(("add_", "_foreach_add_"))]
    for s in run.recording.state:
        added = [op for op in counts if op.inputs and op.inputs[0].dtype == s.dtype and prod(op.inputs[0].shape) == 1]
        if s.dtype not in HALF or s.size != s.tensors or not added:
            continue
        op, most = added[0], 2 ** (DTYPES[s.dtype].digits)
        born = run.asked_like(op.inputs[0]) or receipt.born(run.recording, s.event)
        origin = born or Origin("input", None, None, run.place(op))
        site = run.place(op)
        said = f"{s.optimizer}'s step adds 1 to {quoted(s.name)}, which stops at {most:,}"
        yield silent_finding(
            "DT505",
            At.step(site, ""),
            culprit=Operand(0, s.name, s.dtype, (), op.device, "state", origin),
            flow=(
                *birth(run.recording, s.event, origin, f"{quoted(s.name)} becomes {s.dtype} here"),
                FlowStep(site, "step", "", s.dtype, s.dtype, "value", said=said),
            ),
            fix=advise(_given(origin, site), f"leave {quoted(s.name)} in float32", kind="plan"),
            count=op.count,
            title=f"{s.optimizer} counts its steps in {s.dtype}: from {most:,} on the count stands still",
            notes=("what follows from the count (bias correction, a schedule) stands still with it",),
        )
