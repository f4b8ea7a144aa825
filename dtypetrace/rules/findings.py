"""Findings: from refused calls and silent changes to one list, the worst first.

Each refused call becomes a case (``rules.case``): its operands with their origins, the verdict of a principle
(``rules.culprits``), the culprit and the flow from its birth. The case becomes a finding with its remedy
(``rules.remedies``). Findings of one cause are grouped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from .. import graph
from ..parts import attempt
from ..records import (
    CAST,
    FORWARD,
    Finding,
    FlowStep,
    Frame,
    Operand,
    Origin,
    Place,
    Raised,
    Reach,
    Recording,
    Refused,
    Ruling,
    Witness,
)
from ..source import editing, expressions, operands, regions
from ..source.operands import CallOperand
from ..source.patch import disjoint
from ..tables import autocast, refusals
from ..tables.codes import OF_VALUES, TITLES
from ..tables.dtypes import COMPLEX, COUNTERPART, FLOATING, HALF, wider
from ..tables.english import quoted, subject
from ..tables.operators import is_move, name_of, tagged
from . import at_use, autocast_off, checks, coded, consequences, culprits, measured, titles, trials
from .case import Case, in_forward, trained_root
from .collision import Verdict
from .registry import RULES, Rule, known
from .remedies import remedy, short
from .run_facts import Run

_SEVERITY = {"error": 0, "warning": 1, "note": 2}
_AGREEING = ("agree", "kernel", "other", "fits")
"""What an operation can require of its operands together; other requirements are about the kind of one operand."""


def find(recording: Recording, ignore: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """All findings of a recording: the one that ended the run first, then by severity and count."""
    collisions = [refused for refused in recording.refused if refused.left or not _asked_only(refused)]
    healed = any(refused.healed for refused in collisions)
    if healed:  # exceptions that the program handles itself did not need healing
        collisions = [refused for refused in collisions if refused.healed or refused.left]
    found = _grouped(recording, collisions, healed)
    silent = attempt("what nothing refused", lambda: _silent(recording), [])
    found += attempt(
        "which finding follows from which", lambda: consequences.left_out(recording, found, silent), silent
    )
    found = [f for f in found if f.code not in ignore and not _silenced(recording, f)]
    found = [replace(f, title=attempt(f"the title of {f.code}", partial(titles.specific, f), f.title)) for f in found]
    found = [attempt(f"the diff of {f.code}", partial(_with_disjoint_edits, recording, f), f) for f in found]
    ordered = sorted(found, key=partial(_order, _first_ops(recording)))
    if healed:  # the first refusal is what ends the program by itself; every later one came after a cast
        refused = [f for f in found if f.kind == "collision"]
        ordered = [*refused, *(f for f in ordered if f.kind != "collision")]
    return tuple(ordered)


def to_try(recording: Recording) -> list[trials.Asked]:
    """What to try when the run has ended: for results that lost what they should hold, then for what else is found."""
    run = Run(recording)
    suspected = trials.Suspected(run)
    found = _spoken_for(suspected, _found(run, [rule for rule in RULES if rule.of_values]))
    return [*measured.to_try(run), *suspected.asked(found)]


def _with_disjoint_edits(recording: Recording, f: Finding) -> Finding:
    edits = disjoint(recording.text, f.fix.edits) if f.fix is not None else ()
    return f if f.fix is None or edits == f.fix.edits else replace(f, fix=replace(f.fix, edits=edits))


def _silent(recording: Recording) -> list[Finding]:
    """The findings of all rules, with diffs that fit and what was tried."""
    run = Run(recording)
    fits = partial(checks.shown_if_it_fits, recording)
    checked = [attempt(f"the check of the diff of {f.code}", partial(fits, f), f) for f in _found(run, RULES)]
    found = [_not_too_late(run, _only_if_it_helps(f)) for f in _spoken_for(trials.Suspected(run), checked)]
    return [_backward_unseen(run, f) for f in found]


def _found(run: Run, rules: Iterable[Rule]) -> list[Finding]:
    """The findings of some rules; a rule that fails only loses its own findings."""
    found: list[tuple[Finding, int]] = []
    for rule in rules:
        more = attempt(f"the rule for {', '.join(rule.codes)}", partial(_found_by, rule, run), [])
        closer = [f for f, look in found if look > rule.look]
        found += [(f, rule.look) for f in more if not closer or not known(f, closer)]
    return [f for f, _ in found]


def _spoken_for(suspected: trials.Suspected, found: list[Finding]) -> list[Finding]:
    """Findings, each with the trial that speaks for it."""
    speaks = partial(trials.with_trial, suspected)
    return [attempt(f"what was tried for {f.code}", partial(speaks, f), f) for f in found]


def _only_if_it_helps(f: Finding) -> Finding:
    """A finding whose change is words only where a trial shows that the damage stays without the rounding it blames, or
    goes only without many, where the change casts operands of one call."""
    if f.fix is None or f.tried is None or f.tried.missing:
        return f
    line = lambda place: {(frame.file, frame.line) for frame in place.stack[:1]}
    born = line(f.culprit.origin.place) - line(f.site) if f.culprit is not None else set()
    lines = {(e.file, e.start[0]) for e in f.fix.edits} - born
    one = len(lines) == 1 and all(e.change.target == CAST for e in f.fix.edits)
    if f.tried.cures and not (one and f.tried.roundings > trials.MOST):
        return f
    return replace(f, fix=replace(f.fix, edits=()))


def _not_too_late(run: Run, f: Finding) -> Finding:
    """A finding whose change is words only where it would widen what autocast has made narrow in the same call."""
    ends = {(e.file, e.end) for e in (f.fix.edits if f.fix is not None else ()) if e.change.target == CAST}
    for op in run.ops if ends and f.culprit is not None and f.culprit.dtype in HALF else ():
        frame = next(iter(run.place(op).stack), None)
        at = frame is not None and (frame.file, (frame.end_line, frame.end_column)) in ends
        device, _, compute = op.autocast.partition(":")
        if at and op.outputs[:1] == (compute,) and autocast.policy(op.op, name_of(op), device) == "lower":
            return replace(f, fix=replace(f.fix, edits=())) if f.fix is not None else f
    return f


def _backward_unseen(run: Run, f: Finding) -> Finding:
    """A finding whose change makes numbers finite, which the program then goes back through for the first time: how
    large the gradients are was not seen."""
    went_back = any(op.phase == "backward" for op in run.ops)
    if f.kind != "overflow" or f.phase != "forward" or f.fix is None or not f.fix.edits or went_back:
        return f
    if not run.recording.optimizers:
        return f
    unseen = "no backward pass was seen: whether the gradients fit, too, shows in dtypetrace fix"
    return replace(f, notes=(*f.notes, unseen))


def _found_by(rule: Rule, run: Run) -> list[Finding]:
    return list(rule.find(run))


_When = tuple[bool, tuple[Frame, ...]]
"""Whether an op runs in the backward pass, and its place: that of its forward op."""


def _order(first: Mapping[_When, int], f: Finding) -> tuple[float, ...]:
    """What ended the run comes first. Then collisions, then by severity; then numbers that were destroyed in the
    forward pass, as a trial of a result shows; then settings, which cause other findings; then the other numbers that
    were destroyed: an infinity spoils what is computed from it, a zero is mostly near what it was. Then changes that a
    kept tensor did not take, which is used on, and numbers that were measured to be wrong, before dtypes that only may
    be, and last what a trial shows to be no more than a rounding; then by reach. Of damaged values one causes the next,
    so the earliest comes first."""
    reach = f.reach or Reach(0, 0, 0)
    since = first.get((f.phase in _BACK, f.site.stack), len(first)) if f.kind in OF_VALUES else len(first) + 1
    rank = (
        f.kind != "collision",
        not (f.kind in _DESTROYED and _shown(f) not in ("", "spoilt")),
        f.kind != "plan",
        f.kind not in _DESTROYED,
        f.kind != "overflow",
        not (f.code == "DT307" and _shown(f) == "still"),
        f.kind not in _WRONG and f.code != "DT307",
        f.tried is not None and f.tried.cures and trials.slight(f.tried),
        -reach.flops,
        -reach.bytes,
        since,
        -f.count,
    )
    return (f.exception is None or f.severity != "error", _SEVERITY[f.severity], *rank)


def _shown(f: Finding) -> str:
    """The unit of the damage that a trial shows to come from what a finding of the forward pass blames; empty for none.
    What one call spoils is counted beside it, and says nothing of any result."""
    return f.tried.unit if f.phase in FORWARD and f.tried is not None and f.tried.cures else ""


_DESTROYED = ("overflow", "underflow")
_WRONG = ("precision-loss", "zero-gradient", "downcast")


def _first_ops(recording: Recording) -> dict[_When, int]:
    """The number of the first op at each place. An optimizer's step, which is no op, has none."""
    first: dict[tuple[bool, int], int] = {}
    for number, op in enumerate(recording.ops):
        first.setdefault((op.phase in _BACK, op.place), number)
    found: dict[_When, int] = {}
    for (back, place), number in first.items():
        found.setdefault((back, graph.place_of(recording, place).stack), number)
    return found


_BACK = ("backward", "recompute")


def _asked_only(refused: Refused) -> bool:
    """Whether torch only tested whether a tensor can be an index: then it ignores the exception and tries other
    overloads."""
    return refused.op == "index" and refused.aten is None and refused.exception == "TypeError"


def _silenced(recording: Recording, finding: Finding) -> bool:
    """Whether a line of the finding has ``# dtypetrace: ignore[DT101]``: the line of its birth or the line of its
    site."""
    places = (finding.site, finding.culprit.origin.place if finding.culprit else graph.NOWHERE)
    frames = {frame for place in places for frame in (*place.stack[:1], place.user_frame) if frame is not None}
    return any(
        finding.code in codes.replace(" ", "").split(",")
        for frame in frames
        for codes in _IGNORE.findall(recording.text.line(frame.file, frame.line))
    )


_IGNORE = re.compile(r"#\s*dtypetrace:\s*ignore\[([^\]]*)\]")


def cause(origin: Origin, name: str = "") -> tuple[object, ...]:
    """The key of a cause: the user's own line of the birth and, below it, the library's function."""
    user, inner = origin.place.user_frame, origin.place.stack[0] if origin.place.stack else None
    if inner is None or user is None:
        return (origin.kind, origin.name or name)
    if user is inner or origin.kind in ("parameter", "load", "trained", "computed"):  # one line makes the whole model
        return user.file, user.line
    return user.file, user.line, inner.file, inner.function


def _grouped(recording: Recording, collisions: Iterable[Refused], healed: bool) -> list[Finding]:
    """One finding for each cause: the same refusal with the same culprit and origin, counted.

    In a healed run, one cause is met in one call after another: that is one finding. A refusal that only an inserted
    cast led to is told with the cause that needed the cast.
    """
    kept: dict[tuple[object, ...], Finding] = {}
    keys: dict[int, tuple[object, ...]] = {}
    numbers = {id(refused): number for number, refused in enumerate(recording.refused)}
    for refused in collisions:
        cause = consequences.of_healing(recording, refused)
        if cause in keys:
            keys[numbers[id(refused)]] = key = keys[cause]
            kept[key] = replace(kept[key], notes=(*kept[key].notes, consequences.said(recording, refused)))
            continue
        f = judge(recording, refused)
        keys[numbers[id(refused)]] = key = _key(f, healed)
        if key in kept:
            worst = min(kept[key].severity, f.severity, key=_SEVERITY.__getitem__)
            kept[key] = replace(kept[key], count=kept[key].count + f.count, severity=worst)
        else:
            kept[key] = f
    return list(kept.values())


def _key(f: Finding, healed: bool) -> tuple[object, ...]:
    culprit = f.culprit
    if healed and culprit is not None:
        return cause(culprit.origin, culprit.name)
    birth = culprit and (culprit.origin.kind, culprit.origin.place.stack[:1], culprit.name)
    return f.code, f.kind, f.site.stack, f.phase, birth


# ---------------------------------------------------------------- one refusal


@dataclass(frozen=True, slots=True)
class Judged:
    """One refused call with its verdict and operands; ``case`` is None where there is no culprit."""

    verdict: Verdict
    site: Place
    operands: tuple[Operand, ...]
    case: Case | None


def judged(recording: Recording, refused: Refused) -> Judged:
    """The verdict, the operands and, if one of them is the culprit, the case for its remedy."""
    site = graph.place_of(recording, refused.place)
    return attempt(
        f"who is the culprit in {refused.op}",
        lambda: _judged(recording, refused),
        Judged(Verdict(None), site, (), None),
    )


def other_side(case: Case) -> Case | None:
    """The case if not the culprit were wrong, but what it met; None where these are not two floating dtypes."""
    sides = {w.dtype for w in culprits.contenders(case.refused)}
    if case.refused.wants != "agree" or len(sides) != 2 or not sides <= FLOATING or case.witness.dtype not in sides:
        return None
    return _judged(case.recording, case.refused, Verdict(case.witness.dtype)).case


def _judged(recording: Recording, refused: Refused, verdict: Verdict | None = None) -> Judged:
    refused = autocast_off.with_own_forward(recording, refused)
    verdict = verdict or culprits.verdict(recording, refused)
    chosen = culprits.culprit(refused, verdict.expected)
    measure = _measure(refused, chosen, verdict.expected)
    site = graph.place_of(recording, refused.place)
    operands = tuple(_operand(recording, w, measure, site, refused) for w in refused.witnesses)
    culprit = next((o for o, w in zip(operands, refused.witnesses) if w is chosen), None)
    if chosen is None or culprit is None:
        return Judged(verdict, site, operands, None)
    flow = graph.flow(recording, chosen.event, measure)
    if culprit.origin.kind in ("trained", "computed"):
        leaves = culprit.origin
        weights = f"weights that are trained in {chosen.dtype}" if leaves.kind == "trained" else "another model"
        said = f"{chosen.dtype} is born here: it is computed with {weights}"
        flow = (FlowStep(leaves.place, leaves.op or "", "", chosen.dtype, chosen.dtype, "value", said=said), *flow[1:])
    own = (place.stack[0].user for place in (culprit.origin.place, *(s.place for s in flow[:1])) if place.stack)
    if culprit.origin.kind == "conversion" and [*own] == [True, False]:
        made = f"{expressions.called(recording.text, flow[0].place)}() made"  # in an object, which it is taken out of
        said = f"{chosen.dtype} comes in here: it is taken out of what {made} ({short(flow[0].place)})"
        flow = (replace(flow[0], place=culprit.origin.place, said=said), *flow[1:])
    if culprit.dtype != chosen.dtype:
        flow = (FlowStep(site, refused.op, refused.module, chosen.dtype, culprit.dtype, "autocast"),)
    if culprit.origin.kind == "parameter" and flow and len(culprit.origin.place.stack) < len(flow[0].place.stack):
        flow = (replace(flow[0], place=culprit.origin.place), *flow[1:])  # a whole model's
    if culprit.dtype.startswith("python") and culprit.origin.place.stack[:1] != site.stack[:1]:
        flow = (FlowStep(culprit.origin.place, "", "", chosen.dtype, chosen.dtype, "value"),)
    meets = FlowStep(site, refused.op, refused.module, chosen.dtype, verdict.expected or chosen.dtype, "value")
    taken, witness = in_forward(recording, refused, chosen)
    return Judged(verdict, site, operands, Case(recording, taken, verdict, culprit, witness, (*flow, meets), site))


def _measure(refused: Refused, chosen: Witness | None, expected: str | None) -> str | None:
    """The dtype against which a lineage is followed. For an index that became floating, its own cast is wrong; what has
    no kernel should be float32, whatever the model is in."""
    dtype = chosen.dtype if chosen is not None else ""
    # the only operand, and still refused because it is complex, or because it is real
    if dtype in COUNTERPART and (refused.wants == "complex" or dtype == expected and dtype in COMPLEX):
        return COUNTERPART[dtype]
    if refused.wants == "kernel" and dtype == expected:
        return "float32" if dtype in HALF else None
    if refused.wants in _AGREEING:
        return expected
    return chosen.dtype if chosen is not None and chosen.device else None


def judge(recording: Recording, refused: Refused) -> Finding:
    """The finding of one refused call: operands, culprit, flow, remedy."""
    return finding_of(recording, refused, judged(recording, refused))


def finding_of(recording: Recording, refused: Refused, judged: Judged) -> Finding:
    case = judged.case
    culprit, flow = _since_written(case) if case else (None, ())
    # an optimizer compares weights, gradients and its own state, in whichever function
    code = "DT115" if refused.phase == "optimizer" and refused.wants == "agree" else refused.code
    return Finding(
        code=code,
        kind="collision",
        severity=_severity(recording, refused),
        title=TITLES.get(code, "an operation was refused because of a dtype"),
        phase=refused.phase,
        op=refused.op,
        aten=refused.aten,
        module=refused.module,
        count=refused.count,
        predicted=refused.predicted,
        site=_since_backward(recording, refused, judged.site),
        operands=judged.operands,
        culprit=culprit,
        flow=flow,
        fix=attempt(f"the remedy of {code}", lambda: remedy(case), None) if case else None,
        exception=None if refused.predicted else Raised(refused.exception, refused.message),
        notes=attempt(f"the notes of {code}", lambda: tuple(_notes(refused, judged)), ()),
        principle=judged.verdict.principle,
    )


def _since_backward(recording: Recording, refused: Refused, site: Place) -> Place:
    """The stack of a forward call whose backward was refused, and outside of it the call of ``backward``, where the
    exception is raised."""
    called = graph.place_of(recording, refused.backward).stack
    return replace(site, stack=(*site.stack, *(frame for frame in called if frame not in site.stack)))


def _since_written(case: Case) -> tuple[Operand, tuple[FlowStep, ...]]:
    """The culprit and its way to the refused call, from the cast on with which this run wrote the file if it did."""
    if _is_needed(case) or at_use.lacks_brackets(case) is not None:
        at = Origin("factory", None, case.refused.op, case.site)
        return replace(case.culprit, origin=at), case.flow[-1:]
    if (region := _left_region(case)) is not None:
        at = Origin("autocast", case.origin.name, "autocast", region, True)
        return replace(case.culprit, origin=at), case.flow
    if case.written < 0:
        return case.culprit, case.flow
    origin = graph.origin(case.recording, case.written, None, case.origin.name)
    return replace(case.culprit, origin=origin), (*graph.flow(case.recording, case.written), *case.flow)


def _left_region(case: Case) -> Place | None:
    """The autocast region that the culprit left, where a function called in it computed the culprit: that function
    computes as it is told, and the region ends too early for what meets its result. None where there is none; where the
    region's own lines compute it, these decided what leaves it."""
    refused, text, place = case.refused, case.recording.text, case.origin.place
    if case.origin.kind != "autocast" or refused.autocast or refused.wants != "agree" or refused.phase not in FORWARD:
        return None
    region = regions.statement(text, place)
    if region is None or any(region == outer for outer, _ in regions.around(text, case.site)):
        return None  # it has not ended: another one inside it is off
    return region if any(frame.user for frame in place.stack[: -len(region.stack)]) else None


def _is_needed(case: Case) -> bool:
    """Whether another call of the run takes the same integers as positions, or Python does, by ``int``: they are right
    as they are, and the call that has no kernel for them is the place to change."""
    refused, event = case.refused, case.witness.event
    if refused.wants not in ("float", "kernel") or case.culprit.dtype not in _POSITIONS or event < 0:
        return False
    ops = case.recording.ops
    taken = [i for op in ops if tagged(op, "picks", "places") for i in op.inputs[1:]]
    taken += [i for op in ops if op.op in _BY_PYTHON and not op.outputs for i in op.inputs]
    return any(i.event == event and i.dtype == case.culprit.dtype for i in taken)


_POSITIONS = frozenset({"int32", "int64"})
_BY_PYTHON = frozenset({"int", "index"})


def _severity(recording: Recording, refused: Refused) -> str:
    """An error if it ended the run or would have; a warning if the program handles it in every step; else a note."""
    if refused.left or refused.healed:
        return "error"
    in_every_step = refused.count > 1 and 1 < int(recording.meta.get("steps", 0)) <= refused.count
    return "warning" if in_every_step else "note"


def _operand(recording: Recording, witness: Witness, measure: str | None, site: Place, refused: Refused) -> Operand:
    text, name = recording.text, witness.name or witness.argument
    written, handed = "", ""
    if not witness.name and site.stack and not refused.derived:
        frame = site.stack[0]
        if frame.user and witness.passed:
            written = operands.passed(text, frame, witness.passed, witness.position)
        elif frame.user:
            written = operands.argument(text, frame, refused.op, refused.module, witness.argument, witness.index)
        else:
            written, handed = _handed_on(recording, witness, site, refused)
    if witness.dtype.startswith("python"):
        place = operands.scalar_place(text, site, witness.name)
        name = expressions.written(text, place.stack[0], witness.name) or name if place.stack else name
        origin = Origin("conversion", name, None, place)
    elif witness.dtype.startswith("numpy"):
        called, place = operands.converted(text, site)
        name = called or name
        origin = Origin("conversion", name, None, place)
    else:
        origin = graph.origin(recording, witness.event, measure, witness.name or None)
        origin = replace(origin, name=origin.name or _made_for(recording, witness, measure, refused))
        origin = (
            _handed_over(recording, witness, measure, refused)
            or _of_whole_model(recording, witness, measure, refused)
            or _taken_out(recording, origin)
            or origin
        )
    dtype = _given_by_autocast(refused, witness)
    if dtype != witness.dtype:
        origin = Origin("autocast", witness.name or None, refused.op, site)
    return Operand(
        witness.index, name, dtype, witness.shape, witness.device, witness.holder, origin, written, bool(handed)
    )


def _given_by_autocast(refused: Refused, witness: Witness) -> str:
    """The dtype in which a kernel gets an operand: autocast's, where the refusal names that, and no operand has it."""
    compute = refused.autocast.partition(":")[2]
    had = {w.dtype for w in refused.witnesses}
    inside = refused.wants == "kernel" and ("found", compute) in refused.dtypes and compute not in had
    return compute if inside and witness.dtype == "float32" else witness.dtype


def _made_for(recording: Recording, witness: Witness, measure: str | None, refused: Refused) -> str | None:
    """The parameter of the model that is what was made at a birth; None where there is none, or several are."""
    line = graph.lineage(recording, witness.event, measure)
    held = [
        p.name for p in refused.model if line is not None and p.event >= 0 and recording.events[p.event] is line.root
    ]
    return held[0] if len(held) == 1 else None


def _of_whole_model(recording: Recording, witness: Witness, measure: str | None, refused: Refused) -> Origin | None:
    """The line that makes a model whose parameters all have their dtype by default, where its constructor makes them at
    several lines: none of those decided it. It is the refused call's model, or the one that computed the operand."""
    model, root = refused.model, witness.event
    if witness.holder is None and (root := _of_another_model(recording, witness, measure, refused)) >= 0:
        called = {p.name.partition(".")[0] for p in recording.parameters if p.event == root}
        model = tuple(p for p in recording.parameters if {p.name.partition(".")[0]} == called)
    elif witness.holder != "parameter":
        return None
    events = [recording.events[p.event] for p in model if p.event >= 0]
    if {p.dtype for p in model} != {witness.dtype} or len(events) < len(model):
        return None
    if any(e.how != "parameter" or e.explicit or e.default >= 0 for e in events):
        return None
    stacks = [graph.place_of(recording, e.place).stack[::-1] for e in events]
    shared = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*stacks))]
    inner = {stack[len(shared)].function.rpartition(".")[2] for stack in stacks if len(stack) > len(shared)}
    lines = {(stack[len(shared)].file, stack[len(shared)].line) for stack in stacks if len(stack) > len(shared)}
    if not shared or not shared[-1].user or inner != {"__init__"} or any(len(s) == len(shared) for s in stacks):
        return None
    if witness.holder is None and len(lines) == 1:
        return None
    return Origin("parameter", recording.events[root].name or witness.name, None, Place(tuple(shared[::-1])))


def _handed_over(recording: Recording, witness: Witness, measure: str | None, refused: Refused) -> Origin | None:
    """The line where a result of weights in a wider dtype leaves their model, if these are right: they are trained, or
    are another model's, and the program went on computing with the result outside of any module."""
    if witness.holder is not None or not wider(witness.dtype, measure or witness.dtype):
        return None
    if autocast_off.ran_under(recording, refused) is not None:
        return None  # autocast would have narrowed it: not these weights are the story
    kind, root = "trained", trained_root(recording, refused, witness, measure) if recording.meta.get("trains") else -1
    if root >= 0 and recording.events[root].how == "cast" and recording.events[root].explicit:
        return None  # the cast that widened the weights decided it
    if root < 0:
        kind, root = "computed", _of_another_model(recording, witness, measure, refused)
    number = graph.last_alone(recording, witness, root) if root >= 0 else -1
    if kind == "computed":  # what a library makes of it is not the program's
        number = _left_modules(recording, number, root)
    if number < 0 or recording.ops[number].phase not in FORWARD:
        return None
    op = recording.ops[number]
    if op.place == recording.events[root].place:
        return None  # it made the weight itself, from which nothing was computed since
    place, site = graph.place_of(recording, op.place), graph.place_of(recording, refused.place)
    return Origin(kind, recording.events[root].name, op.op, place) if place.user_frame != site.user_frame else None


def _taken_out(recording: Recording, origin: Origin) -> Origin | None:
    """The line that takes a tensor out of an object in which a library hands over its arrays."""
    inside = bool(origin.place.stack) and not origin.place.stack[0].user
    taken = operands.taken_out(recording.text, origin.place) if inside and origin.kind == "conversion" else None
    outer = editing.from_user(origin.place).stack[1:]
    return replace(origin, place=Place((taken, *outer))) if taken is not None else None


def _left_modules(recording: Recording, number: int, root: int) -> int:
    """The last op on the program's own line, outside of any module, that made a value of an event's dtype; -1 where
    there is none. What an earlier state of this model left outside, such as the scales of its codes, comes from it."""
    ops = recording.ops
    nearest = next((n for n in graph.first_operands(ops, number) if _own(recording, n)), -1)
    if nearest < 0 or not ops[nearest].module:
        return nearest
    above = graph.ops_above(ops, [number], lambda op: [i for i in op.inputs if i.event == root])
    made = (n for n in above if ops[n].effect == "new" and any(i.event == root for i in ops[n].inputs))
    return next((n for n in made if not ops[n].module and ops[n].phase == "other" and _own(recording, n)), -1)


def _own(recording: Recording, number: int) -> bool:
    """Whether the program's own line ran an op that computes; to join results is no more than to move them."""
    op = recording.ops[number] if number >= 0 else None
    passes_on = op is None or is_move(op) or tagged(op.op, "join")
    return op is not None and not passes_on and graph.runs_own_line(recording, op)


def _of_another_model(recording: Recording, witness: Witness, measure: str | None, refused: Refused) -> int:
    """The event of the parameter of another model that decided an operand's dtype; -1 where none did."""
    line = graph.lineage(recording, witness.event, measure)
    if line is None or line.root.how != "parameter" or not refused.module:
        return -1
    own = {p.event for p in refused.model}
    made = [n for n, event in enumerate(recording.events) if event is line.root]
    return next((n for n in made if n not in own), -1)


def _handed_on(recording: Recording, witness: Witness, site: Place, refused: Refused) -> tuple[str, str]:
    """How an operand of a library's call is written: there, and in the program's own call that passed it on, if there
    is one."""
    text = recording.text
    node = CallOperand.of(refused, site, witness).node(text)
    made = graph.NOWHERE
    if witness.producer >= 0:
        made = graph.place_of(recording, recording.ops[witness.producer].place)
    handed = operands.plain(operands.passed_on(text, site, refused.module, node, made))
    return handed or operands.plain(node), handed


# ---------------------------------------------------------------- the facts behind a verdict


def _notes(refused: Refused, judged: Judged) -> Iterable[str]:
    case, verdict = judged.case, judged.verdict
    if refused.unwatched:
        yield from _unwatched(refused)
    if case is not None:
        differs = case.culprit.dtype != verdict.expected
        if verdict.reason and differs and refused.wants not in ("fits", "integer", "bool", "float"):
            joined = ", but " if verdict.although else "; "
            name = subject(case.culprit, refused.op, refused.phase, case.site)
            yield f"{name} is {case.culprit.dtype}{joined}{verdict.reason}"
        if differs and refused.wants in ("agree", "other"):
            yield from _others(case, judged.operands)
    if refused.in_vain:
        yield f"with its operands cast, {quoted(refused.op)} raises {refused.in_vain}: a cast is not enough"
    if refused.autocast:
        yield f"autocast was on: {refused.autocast}"
    if case is not None:
        yield from _autocast_off(case)
    if not refused.witnesses and refused.dtypes:
        yield f"its tensors were not seen; the message names {refusals.in_words(dict(refused.dtypes))}"
    if not (refused.left or refused.healed or refused.predicted):
        yield "the program caught torch's error and went on: nothing has to change if this call is allowed to fail"


def _autocast_off(case: Case) -> Iterable[str]:
    """That autocast is off at a call where it would have helped, where the run or the text shows it."""
    if case.off is not None:
        yield at_use.off_words(case.off)
    elif case.ran_under is not None:
        at = f" in the region of {short(case.in_region)}" if case.in_region is not None else ""
        yield f"autocast is off here; this call ran under autocast before{at} ({case.ran_under.autocast})"


def _unwatched(refused: Refused) -> Iterable[str]:
    """What is known of a refusal in a step that was not watched, and from where."""
    step = f"step {refused.unwatched:,} was not watched"
    operands = "its operands are those that the traceback still held"
    if refused.before:
        dtypes = " and ".join(dict.fromkeys(refused.before))
        yield f"{step}: {operands}; module and phase are those of this line in watched steps, where it ran in {dtypes}"
    else:
        yield f"{step}: {operands}; in watched steps this line did not run"


def _others(case: Case, operands: tuple[Operand, ...]) -> Iterable[str]:
    """Operands whose dtype is also wrong but that have another birth: each has to be changed, too."""
    culprit = case.culprit
    others = {
        (o.shown, o.dtype, o.origin)
        for o in operands
        if o.dtype in FLOATING
        and o.dtype != case.verdict.expected
        and o.origin.place.stack
        and o.origin.place.stack[:1] != culprit.origin.place.stack[:1]
    }
    for name, dtype, origin in sorted(others, key=lambda o: o[0]):
        yield f"{quoted(name)} is {dtype} too, since {short(origin.place)}"


# ---------------------------------------------------------------- for healing


def ruling(recording: Recording, refused: Refused) -> Ruling:
    """Which operands of a refused call healing casts, and to which dtype: the same that its finding will state."""
    expected = culprits.verdict(recording, refused).expected
    culprit = culprits.culprit(refused, expected)
    if culprit is not None and coded.holds_codes(recording, culprit):
        culprit = None  # cast codes are other numbers
    causes = {
        w.index: cause(graph.origin(recording, w.event, expected, w.name or None), w.name) for w in refused.witnesses
    }
    blamed = causes.get(culprit.index) if culprit is not None else None
    return Ruling(
        culprit,
        expected,
        frozenset(w.dtype for w in culprits.contenders(refused)),
        frozenset(index for index, owed in causes.items() if owed == blamed),
    )
