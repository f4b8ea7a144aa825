"""Checks every edit of a remedy before it is shown as a diff.

Each check is a function from a proposal to an objection, in words, or to an empty text. They run in order:
first those of the text, then those of the dtype rules, which replay the recorded run with the change. If one of them
objects, the proposal is not shown as a diff.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from .. import graph
from ..foresight import DtypeChange, Replay, given_again, refused_again
from ..records import CAST, FORWARD, Edit, Finding, Fix, Op, Parameter, Recording, Witness
from ..source import decisions, receivers
from ..source.patch import Patch
from ..tables.dtypes import COMPLEX, FLOATING, HALF, NARROW, narrower, wider
from ..tables.english import quoted
from ..tables.operators import is_destination, tagged
from ..tables.rule_language import Gives, Prediction, Refuses
from . import autocast_off, coded, effects
from .advice import TESTED, advise, without_diff
from .case import Case, short
from .run_facts import Run


@dataclass(frozen=True)
class Text:
    """Edits, and the program that they change."""

    recording: Recording
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Proposal:
    """A remedy with edits, for its case."""

    case: Case
    fix: Fix
    known: effects.Effect | None = None
    """What it changes, where that does not follow from its edits."""

    @property
    def recording(self) -> Recording:
        return self.case.recording

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self.fix.edits

    @cached_property
    def effect(self) -> effects.Effect | None:
        """What the edits change in the recorded run; None where that is not known."""
        return self.known or effects.effect_of(self.case, self.fix)

    @cached_property
    def run(self) -> Replay | None:
        """The recorded run after the edits."""
        return self.case.run.after(self.effect.change) if self.effect is not None else None


Check = Callable[[Proposal], str]


# ---------------------------------------------------------------- the text


Written = Text | Proposal


def it_parses(proposal: Written) -> str:
    """The patched text is Python."""
    for file, text in _patched(proposal).items():
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return f"the patched {file} is not valid Python"
    return ""


def _patched(proposal: Written) -> Mapping[str, str]:
    """The text of each file after the edits."""
    patch = Patch(proposal.recording.text, shown=True)
    patch.set(patch.locate(proposal.edits))
    return patch.texts


def its_names_exist(proposal: Written) -> str:
    """Every name that an edit adds is defined at that place, or by another of the edits."""
    patched = _patched(proposal) if len(proposal.edits) > 1 else {}
    made = {name for text in patched.values() for name in _bound(ast.parse(text))}
    for edit in proposal.edits:
        new = _names(edit.after, ast.Load) - _names(edit.after, ast.Store) - _names(edit.before, ast.Load)
        file = proposal.recording.text.parsed(edit.file)
        if file is not None and (missing := new - made - _bound(file.tree) - set(dir(builtins))):
            return f"{', '.join(sorted(missing))} has no meaning at line {edit.start[0]}"
    return ""


def it_casts_a_tensor(proposal: Proposal) -> str:
    """An edit casts a tensor or a module: not a mapping, a tuple or an object with tensors in it."""
    for edit in proposal.fix.edits:
        file = proposal.recording.text.parsed(edit.file)
        if file is None or edit.change.target != CAST or effects.casts_a_module(proposal.case, edit):
            continue
        here = next((n for n in file.ends.get(edit.end, ()) if file.start(n) == edit.start), None)
        if here is not None and (why := receivers.no_tensor(file, here)):
            return why
    return ""


def its_value_was_made(proposal: Proposal) -> str:
    """What an edit casts had been returned when the call was refused: the call that makes it was not still running."""
    late = [e for e in proposal.fix.edits if e.change.target == CAST and still_running(proposal.case, e)]
    if not late or len(late) < len(proposal.fix.edits):  # an operand is cast beside the result
        return ""
    return f"{late[0].before} did not return: {quoted(proposal.case.refused.op)} was refused inside it"


def still_running(case: Case, edit: Edit) -> bool:
    """Whether a call in the text of an edit was running when another was refused in it, which had never run before."""
    return any(effects.within(frame, edit) for frame in case.site.stack) and not case.ran_before


def it_casts_no_codes(proposal: Proposal) -> str:
    """Packed or scaled numbers are not cast: their module decodes them."""
    case = proposal.case
    casts = proposal.fix.kind != "call" and any(edit.change.target for edit in proposal.edits)
    if not casts or not coded.holds_codes(case.recording, case.witness):
        return ""
    return f"{quoted(case.culprit.shown)} holds codes, which a cast does not decode"


def it_keeps_imaginary_parts(proposal: Proposal) -> str:
    """The result of an expression is not cast to a real dtype where it is complex: a step inside it was not."""
    recording = proposal.recording
    ends: dict[tuple[str, object], Edit] = {
        (e.file, e.end): e for e in proposal.edits if e.change.target == CAST and e.change.dtype not in COMPLEX
    }
    last = dict[Edit, Op]()
    for op in recording.ops if ends else ():
        frame = next(iter(graph.place_of(recording, op.place).stack), None)
        edit = ends.get((frame.file, (frame.end_line, frame.end_column))) if frame is not None else None
        if edit is not None:
            last[edit] = op
    edit = next((e for e, op in last.items() if not COMPLEX.isdisjoint(op.outputs)), None)
    return f"{quoted(edit.before)} is complex" if edit is not None else ""


def it_spares_variables(proposal: Written) -> str:
    """No literal replaces a variable: its value was decided elsewhere, and the next configuration would break. Weights
    whose gradients are scaled are float32 in each of them."""
    scaled = isinstance(proposal, Proposal) and proposal.case.refused.code == "DT116"
    for edit in proposal.edits if not scaled else ():
        after = _expression(edit.after)
        before = _expression(edit.before)
        variable = isinstance(before, (ast.Name, ast.Attribute, ast.Subscript)) and not decisions.spelled(before)
        if variable and after is not None and decisions.spelled(after):
            return f"{edit.before} is a variable, which others may read"
    return ""


def it_widens_no_rounded_value(proposal: Proposal) -> str:
    """Weights, and the result of a cast, are not cast to a wider dtype after the cast that narrowed them: that does
    not bring back what it rounded away."""
    case = proposal.case
    known = {p.event for p in (*case.refused.model, *case.recording.parameters) if p.event >= 0}
    of_weights = any(effects.place_of(case, case.recording.events[n].place) == case.origin.place for n in known)
    around = case.origin.place.stack if of_weights else case.origin.place.stack[:1]
    for edit in proposal.edits if case.origin.kind == "cast" else ():
        widens = edit.change.target == CAST and wider(edit.change.dtype, case.culprit.dtype)
        if widens and any((f.end_line, f.end_column) == edit.end for f in around):
            return f"{edit.before} rounds first"
    return ""


def it_widens_no_model(proposal: Proposal) -> str:
    """Where one value meets wider numbers, not all weights that it was computed with are widened: the program cast them
    to 16 bits itself. What an optimizer computes of its weights is no such value."""
    case, effect = proposal.case, proposal.effect
    value = case.culprit.holder is None and case.culprit.dtype in HALF and case.refused.phase != "optimizer"
    if effect is None or not value or case.refused.wants != "agree":
        return ""
    births, events = effect.change.births, case.recording.events
    known = {p.event: p for p in (*case.refused.model, *case.recording.parameters) if p.event in births}
    cast = [p for n, p in known.items() if events[n].how == "cast" and wider(births[n], p.dtype)]
    return f"it would widen all weights that are cast with {cast[0].name}" if cast else ""


# ---------------------------------------------------------------- what an optimizer trains


def it_keeps_what_is_trained(proposal: Proposal) -> str:
    """What an optimizer trains is not narrowed to 16 bits or fewer, unless the program trains other weights in that
    dtype."""
    case = proposal.case
    if not case.recording.meta.get("trains") or proposal.effect is None:
        return ""
    births = proposal.effect.change.births
    # what is trained may be another module's, or no module's
    known: list[Parameter | Witness] = [*case.refused.model, *case.recording.parameters, *case.refused.witnesses]
    chosen = {p.dtype for p in known if p.trained and p.event not in births} | {u.dtype for u in case.recording.updates}
    for p in known:
        wanted = births.get(p.event, p.dtype) if p.event >= 0 else p.dtype
        if p.trained and narrower(wanted, p.dtype) and wanted in NARROW - chosen:
            return f"it would train {p.name or 'what an optimizer was given'} in {wanted}"
    return ""


def it_draws_no_fractions_as_integers(proposal: Proposal) -> str:
    """What draws fractions (`rand`, `randn`) makes no integers: torch refuses that."""
    events, births = proposal.recording.events, proposal.effect.change.births if proposal.effect is not None else {}
    drawn = (events[n].op for n, dtype in births.items() if n >= 0 and dtype not in FLOATING | COMPLEX)
    op = next((op for op in drawn if tagged(op, "random") and tagged(op, "factory")), "")
    return f"{op}() makes no integers" if op else ""


# ---------------------------------------------------------------- other runs of the refused line


def it_spares_earlier_calls(proposal: Proposal) -> str:
    """Where the refused line wrote into floating tensors before, what it wrote is not cut to integers: entries of a
    state dict have several dtypes. A cast to the dtype of the destination leaves the others as they were."""
    case, effect = proposal.case, proposal.effect
    dtype, wanted = case.culprit.dtype, {e.change.dtype for e in proposal.edits if not e.change.like} - FLOATING - {""}
    written = any(is_destination(case.refused.op, w.argument, w.index) for w in case.refused.witnesses)
    if effect is None or dtype not in FLOATING or not wanted or not written:
        return ""
    for op in autocast_off.earlier(case.recording, case.refused):
        if {i.dtype for i in op.inputs} == {dtype}:
            makers = (case.recording.ops[i.producer] for i in op.inputs if i.producer >= 0)
            made = [f for maker in makers for f in effects.place_of(case, maker.place).stack[:1]]
            if effect.casts or any(effects.inside(edit, f) for f in made for edit in proposal.edits):
                return f"earlier calls of this line, which write {dtype}, would write {min(wanted)}"
    return ""


def it_spares_other_kinds(proposal: Proposal) -> str:
    """Where a dtype was born, no dtype is written for all that the line makes, if that are floating numbers and others:
    a function that converts a batch, its observations and its actions."""
    case, place = proposal.case, proposal.case.origin.place
    written = [e for e in proposal.edits if e.change.dtype and not e.change.like]
    if not place.stack or not written or proposal.fix.place != place:
        return ""
    wanted = written[0].change.dtype
    made = (e.to for e in case.recording.events if effects.place_of(case, e.place).stack[:1] == place.stack[:1])
    other = {
        to for to in made if to != case.culprit.dtype and (to in FLOATING | COMPLEX) != (wanted in FLOATING | COMPLEX)
    }
    return f"this line makes {min(other)} tensors, too" if other else ""


def it_suits_earlier_runs(proposal: Proposal) -> str:
    """No dtype is named, in the refused line or where its operand was made, for which that line ran in another one
    before, with weights of that: it would be refused there."""
    case, named = proposal.case, {e.change.dtype for e in proposal.edits if not e.change.like} - {""}
    weights = any(w.holder == "parameter" and w.dtype in named for w in case.refused.witnesses)
    if case.refused.wants != "agree" or case.culprit.holder == "parameter" or not weights:
        return ""
    others = case.earlier_weights(lambda f: any(effects.inside(e, f) for e in proposal.edits)) - named
    return f"earlier calls of this line have {min(others)} weights" if others else ""


# ---------------------------------------------------------------- the dtype rules


def it_is_not_refused_again(proposal: Proposal) -> str:
    """By the dtype rules, the refused call accepts its operands after the change.

    If the change cannot be followed to the call, nothing is known.
    """
    case, run, effect = proposal.case, proposal.run, proposal.effect
    if run is None or effect is None or not isinstance(_again(proposal), Refuses):
        return ""
    mended = given_again(run, case.refused, effect.casts).get(case.witness.index, "") == case.wanted
    # what else is wrong at this call has a cause of its own
    return f"{quoted(case.refused.op)} would refuse it again" if not mended else ""


def _again(proposal: Proposal) -> Prediction | None:
    """What becomes of the refused call after the change; None where the change was not followed to it: no operand
    changes, or comes from what was changed."""
    run, effect, refused = proposal.run, proposal.effect, proposal.case.refused
    if run is None or effect is None:
        return None
    now = given_again(run, refused, effect.casts)
    if not effect.numbers and now == {w.index: w.dtype for w in refused.witnesses if w.index in now}:
        path = set(graph.ops_above(proposal.case.recording.ops, [proposal.case.witness.producer]))
        if not effect.change.results.keys() & path and not _is_absorbed(run, path):
            return None
    return refused_again(run, refused, effect.casts, effect.numbers)


def _is_absorbed(run: Replay, path: set[int]) -> bool:
    """Whether a change of what an operand was computed from is lost on its way: a wider operand widens it again. Every
    op on the way must have a rule."""
    changed = any(run.ops[n].outputs != run.recording.ops[n].outputs for n in path)
    return changed and not any(run.ops[n].unknown for n in path)


def nothing_else_is_refused(proposal: Proposal) -> str:
    """By the dtype rules, the change makes no other call fail: the collision does not move."""
    return refused_in(proposal.run) if proposal.run is not None else ""


def refusing(run: Replay) -> Op | None:
    """The first call of a forward pass that a change makes fail."""
    return next((op for op, now in zip(run.recording.ops, run.ops) if now.code and op.phase in FORWARD), None)


def refused_in(run: Replay) -> str:
    """What :func:`refusing` finds, as an objection; empty where there is nothing."""
    op = refusing(run)
    return f"{quoted(op.op)} at {short(graph.place_of(run.recording, op.place))} would refuse it" if op else ""


def other_modules(case: Case) -> list[Op]:
    """The calls of the refused line by other modules, one for each: a line of a forward that several layers share."""
    if not case.refused.module:
        return []
    here = (op for op in case.recording.ops if effects.place_of(case, op.place).stack[:1] == case.site.stack[:1])
    found = {op.module: op for op in here if op.op == case.refused.op and op.module != case.refused.module}
    return list(found.values())


def it_keeps_what_is_magnified(proposal: Proposal) -> str:
    """What makes a rounding of its operand larger (an angle's `sin`, a running sum) is not computed in a narrower dtype
    than it is: its result is cast."""
    run, recording = proposal.run, proposal.recording
    if run is None:
        return ""
    for n in graph.ops_above(recording.ops, [proposal.case.witness.producer]):
        op, now = recording.ops[n], run.ops[n].outputs[:1]
        if now and op.outputs and tagged(op.op, "magnifies") and narrower(now[0], op.outputs[0]) and now[0] in NARROW:
            return f"{quoted(op.op)} would lose digits in {now[0]}"
    return ""


OF_DTYPES: tuple[Check, ...] = (
    it_draws_no_fractions_as_integers,
    it_keeps_what_is_trained,
    it_keeps_what_is_magnified,
    it_is_not_refused_again,
    nothing_else_is_refused,
)
"""What is asked of a change, however it is written."""
CHECKS: tuple[Check, ...] = (
    it_parses,
    its_names_exist,
    it_casts_a_tensor,
    its_value_was_made,
    it_casts_no_codes,
    it_keeps_imaginary_parts,
    it_spares_variables,
    it_widens_no_rounded_value,
    it_widens_no_model,
    it_spares_earlier_calls,
    it_spares_other_kinds,
    it_suits_earlier_runs,
    *OF_DTYPES,
)
"""In the order in which they run."""
FORBIDDING: tuple[Check, ...] = (
    it_casts_no_codes,
    it_keeps_imaginary_parts,
    it_spares_variables,
    it_widens_no_rounded_value,
    it_spares_earlier_calls,
    it_spares_other_kinds,
    it_keeps_what_is_trained,
    it_keeps_what_is_magnified,
    it_draws_no_fractions_as_integers,
)
"""What no run can make good: ``fix`` does not even try what these object to."""


def forbidden(case: Case, fix: Fix) -> bool:
    """Whether a remedy's edits are not to be made, however the program runs with them."""
    return bool(fix.edits) and any(check(Proposal(case, fix)) for check in FORBIDDING)


def objection(case: Case, fix: Fix) -> str:
    """Why the edits of a remedy must not be shown; empty where they may be, or where there are none."""
    if not fix.edits:
        return ""
    if case.refused.in_vain:
        return f"{quoted(case.refused.op)} would raise {case.refused.in_vain}"
    proposal = Proposal(case, fix)
    return next((why for check in CHECKS if (why := check(proposal))), "")


def objection_to(case: Case, effect: effects.Effect) -> str:
    """Why a change must not be advised, with whatever edits; empty where it may be."""
    proposal = Proposal(case, advise(case.here, ""), effect)
    return next((why for check in OF_DTYPES if (why := check(proposal))), "")


# ---------------------------------------------------------------- what was not refused


def objection_of_text(recording: Recording, edits: tuple[Edit, ...]) -> str:
    """Why edits do not fit the program's text; empty where they do."""
    change = Text(recording, edits)
    return next((why for check in (it_parses, its_names_exist, it_spares_variables) if (why := check(change))), "")


def sound(run: Run, edits: tuple[Edit, ...], change: DtypeChange) -> bool:
    """Whether there are edits that fit the text, and after which, by the dtype rules, no call is refused."""
    if not edits or objection_of_text(run.recording, edits):
        return False
    replay = run.after(change)
    return replay is not None and refusing(replay) is None


def shown_if_it_fits(recording: Recording, found: Finding) -> Finding:
    """A finding, without the edits of its fix if they do not fit the text."""
    fix = found.fix
    if fix is not None and fix.by_hand and objection_of_text(recording, fix.by_hand):
        return replace(found, fix=replace(fix, by_hand=()))
    if fix is None or not fix.edits or fix.checked:
        return found
    why = objection_of_text(recording, fix.edits)
    return replace(found, fix=without_diff(fix, why) if why else replace(fix, checked=TESTED[:1]))


def born_otherwise(run: Run, fix: Fix, births: Mapping[int, str]) -> Fix:
    """A fix whose edits change births, each event to a dtype; without its edits where something objects."""
    replay = run.after(DtypeChange(births=births)) if fix.edits and min(births, default=-1) >= 0 else None
    if replay is None:
        return fix
    why = objection_of_text(run.recording, fix.edits) or refused_in(replay)
    return without_diff(fix, why) if why else replace(fix, checked=TESTED)


def done(case: Case, fix: Fix) -> tuple[str, ...]:
    """The checks that the edits passed, as the JSON report names them."""
    proposal = Proposal(case, fix)
    found = [*TESTED[:1]]
    if proposal.run is not None and proposal.effect is not None:
        found.append(TESTED[1])
        if isinstance(_again(proposal), Gives):
            found.append("dtype rules: the refused call runs")
    return tuple(found)


# ---------------------------------------------------------------- names and receivers in the text


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _names(text: str, context: type[ast.expr_context]) -> set[str]:
    """The names that an expression reads, or binds."""
    tree = _expression(text)
    found = ast.walk(tree) if tree is not None else ()
    return {n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _bound(tree: ast.Module) -> set[str]:
    """Every name that a file binds anywhere."""
    return set(_binding(tree))


def _binding(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
