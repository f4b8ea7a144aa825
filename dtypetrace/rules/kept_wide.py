"""What to change where values leave the range of their dtype (DT301, DT302): the cast or the call that should make
float32, or a loss scaler.

The change is an edit if the program's own line shows it, and if nothing objects: the checks of the text, which every
diff has to pass; the dtype rules, by which no call may be refused after it; and a cast further on that would bring the
values back at once. Else it is in words.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import graph
from ..foresight import DtypeChange, Replay, predict
from ..records import FORWARD, Edit, Fix, Op, Operand, Place
from ..source import editing
from ..tables.dtypes import REAL, wider
from ..tables.operators import NAMED_CASTS, destination, is_cast, is_move, writes
from ..tables.rule_language import Gives
from . import checks, wide_weights
from .case import short
from .run_facts import Run, argument_of

WIDE = "float32"
_CHECKED = ("text", "dtype rules: nothing else is refused")


def keep_wide(run: Run, number: int, culprit: Operand, site: Place, cast: bool) -> Fix:
    """Where a cast is the cause, the cast has to change; where a float16 model computes as configured, only this op."""
    op, born = run.ops[number], culprit.origin.place
    here = born.stack[:1] == site.stack[:1]
    if not (cast or culprit.dtype != run.dominant(op) or here):
        return wide_here(run, number, site)
    scale = ("scale them down before they are cast",) if cast else ()
    if here and (edits := _shown(run, number, [_of_cast(run, number)])):
        other = "keep them in bfloat16, whose range is as wide"
        return Fix("dtype", born, edits, True, "keep these values in float32", (other, *scale), _CHECKED)
    return Fix("dtype", born, (), False, "keep these values in float32, or in bfloat16, whose range is as wide", scale)


def wide_here(run: Run, number: int, site: Place) -> Fix:
    """An island: one op in float32 inside a model of another dtype."""
    why = f"cast to float32 what {run.ops[number].op} takes here"
    edits = _shown(run, number, _of_operands(run, number))
    instead = "let the model compute in bfloat16, whose range is as wide as float32's"
    return Fix("dtype", site, edits, bool(edits), why, (instead,), _CHECKED if edits else ())


def compute_wide(run: Run, number: int, alternatives: tuple[str, ...]) -> Fix:
    """One op in float32, in whose dtype numbers become zero that something divides by."""
    site, casts = run.place(run.ops[number]), is_cast(run.ops[number])
    edits = _shown(run, number, [_of_cast(run, number)] if casts else _of_operands(run, number))
    if edits:
        return Fix("dtype", site, edits, True, "compute this in float32", alternatives, _CHECKED)
    return Fix("dtype", site, (), False, "compute this in float32 and cast the result back", alternatives)


def cast_wide(run: Run, number: int) -> Fix:
    """A cast that makes small values zero."""
    site, scale = run.place(run.ops[number]), "scale them up before they are cast"
    if edits := _shown(run, number, [_of_cast(run, number)]):
        return Fix("dtype", site, edits, True, "keep these values in float32", (scale,), _CHECKED)
    return Fix("dtype", site, (), False, f"keep these values in float32, or {scale}")


def scale_loss(run: Run, site: Place) -> Fix:
    """A loss scaler, with the lines to type where the program's text shows its training step."""
    instead = ("compute this part in bfloat16 or float32",)
    step = next((u.place for u in run.recording.updates if u.place >= 0), -1)
    lines = wide_weights.scaling_lines(run.recording, graph.place_of(run.recording, step)) if step >= 0 else ()
    if lines:
        return Fix("plan", site, (), False, "scale the loss, so that its gradients fit float16", instead, lines=lines)
    scaled = "scale the loss (torch.amp.GradScaler), so that its gradients fit float16"
    if not run.recording.updates:  # a scaler is for steps of an optimizer
        scaled = (
            "multiply the loss by a power of two, such as 2**14, and divide its gradients by it: they then fit float16"
        )
    return Fix("plan", site, (), False, scaled, instead)


# ---------------------------------------------------------------- the edits


def _of_cast(run: Run, number: int) -> tuple[Edit, ...]:
    """The edit by which a cast makes float32, if the call itself names the dtype: other casts may use a variable."""
    op = run.ops[number]
    place = run.place(op)
    if op.op not in NAMED_CASTS or op.phase not in FORWARD or not op.inputs or run.weight_of(op.inputs[0]):
        return ()
    edit = editing.at_birth(run.recording, "cast", place, WIDE)
    return (edit,) if edit is not None and checks.inside(edit, place.stack[0]) else ()


def _of_operands(run: Run, number: int) -> Iterator[tuple[Edit, ...]]:
    """The edits that cast operands of a call so that it makes float32: of all narrow ones, else of the first."""
    op = run.ops[number]
    if op.phase not in FORWARD or writes(op) or any(run.weight_of(i) for i in op.inputs):
        return
    place = run.place(op)
    narrow = [n for n, i in enumerate(op.inputs) if i.dtype in REAL and wider(WIDE, i.dtype)]
    edits = {
        n: edit
        for n in narrow
        if (edit := editing.at_call(run.recording, place, op.op, op.module, argument_of(op, n), n, WIDE)) is not None
    }
    if not edits:
        return
    for chosen in (narrow, list(edits)[:1]):
        if all(n in edits for n in chosen) and _makes_wide(op, chosen):
            yield tuple(edits[n] for n in chosen)


def _makes_wide(op: Op, cast: list[int]) -> bool:
    """Whether an op makes float32 by the dtype rules, if these operands are cast to it."""
    before = tuple(i.dtype for i in op.inputs)
    given = tuple(WIDE if n in cast else dtype for n, dtype in enumerate(before))
    outcome = predict(op, before, given)
    return isinstance(outcome, Gives) and outcome.dtypes[:1] == (WIDE,)


# ---------------------------------------------------------------- what may object


def _shown(run: Run, number: int, proposed: Iterator[tuple[Edit, ...]] | list[tuple[Edit, ...]]) -> tuple[Edit, ...]:
    """The first edits that nothing objects to."""
    return next((edits for edits in proposed if edits and not _objection(run, number, edits)), ())


def _objection(run: Run, number: int, edits: tuple[Edit, ...]) -> str:
    """Why edits that make an op's result float32 must not be shown; empty where they may be."""
    if len(run.ops) > checks.MOST_OPS:
        return "the run is too long to be followed"
    fix = Fix("dtype", run.place(run.ops[number]), edits, True, "")
    if why := checks.objection_of_text(checks.Text(run.recording, fix)):
        return why
    replay = Replay(run.recording, DtypeChange(results={number: WIDE}))
    if why := checks.refused_in(replay):
        return why
    return _narrowed_again(run, replay, number)


def _narrowed_again(run: Run, replay: Replay, number: int) -> str:
    """Where the wide result would be cast back before anything is computed with it."""
    waiting, seen = [number], {number}
    while waiting:
        above = waiting.pop()
        for user in run.users[above]:
            op, now = run.ops[user], replay.ops[user]
            taken = [n for n, i in enumerate(op.inputs) if i.producer == above]
            into = destination(op)
            stored = now.inputs[into] if 0 <= into < len(now.inputs) and into not in taken else WIDE
            made = now.outputs[0] if is_cast(op) and now.outputs else WIDE
            if any(wider(WIDE, dtype) for dtype in (made, stored, *(now.inputs[n] for n in taken))):
                return f"{op.op} at {short(run.place(op))} would make it narrow again"
            if user not in seen and (is_move(op) or is_cast(op)):
                seen.add(user)
                waiting.append(user)
    return ""
