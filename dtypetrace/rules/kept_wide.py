"""What to change where values leave the range of their dtype (DT301, DT302): the cast or the call that should make
a wider dtype, or a loss scaler.

The change is an edit if the program's own line shows it, and if nothing objects: the checks of the text, which every
diff has to pass; the dtype rules, by which no call may be refused after it; and casts further on that would make the
values narrow again. Else it is in words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from .. import graph
from ..foresight import DtypeChange, Replay, predict
from ..foresight.carry import Carried
from ..records import FORWARD, Edit, Fix, Input, Op, Operand, Origin, Place
from ..source import editing, regions
from ..source.operands import CallOperand
from ..source.optimizers import clipped_in_float32
from ..tables import autocast
from ..tables.dtypes import DTYPES, REAL, wider
from ..tables.english import quoted
from ..tables.operators import NAMED_CASTS, destination, is_cast, is_move, name_of, tagged, writes
from ..tables.rule_language import Gives
from . import checks, effects, wide_weights
from .advice import advise
from .case import one, short
from .run_facts import FAR, Run, argument_of


def keep_wide(run: Run, number: int, culprit: Operand, event: int, cast: bool) -> Fix:
    """Where a cast is the cause, the cast has to change; where the dtype was decided for these values alone, that line;
    where a float16 model computes as configured, only this op. ``event``: the birth."""
    op, born = run.ops[number], culprit.origin.place
    site = run.place(op)
    here = born.stack[:1] == site.stack[:1]
    wide = _wider_than(culprit.dtype)
    why = f"keep these values in {wide}"
    same_range = wide == "float32" and not tagged(op, "pole")  # a zero by rounding is one in bfloat16, too
    scale = ("scale them down before they are cast",) if cast else ()
    half = ("keep them in bfloat16, whose range is as wide as float32's",) if same_range else ()
    if here and (edits := _shown(run, number, [_of_cast(run, number)], far=True)):
        return advise(born, why, edits=edits, others=(*half, *scale), tested=True)
    if (fix := from_birth(run, culprit, event, [number])) is not None:
        return replace(fix, alternatives=half)
    if not (cast or culprit.dtype != run.dominant(op) or here):
        return wide_here(run, number, site)
    half_too = ", or in bfloat16, whose range is as wide as float32's" if same_range else ""
    return advise(born, f"{why}{half_too}", others=scale)


def from_birth(
    run: Run, culprit: Operand, event: int, numbers: Iterable[int], beside: Iterable[int] = ()
) -> Fix | None:
    """A wider dtype where that of these values was decided, with an edit; None where that decides for weights, does not
    reach all ops ``numbers``, what they make would be made narrow again, or something else objects. ``beside``: other
    births that have to be wider with it, as have those of its line where that is possible."""
    line = [n for n in run.beside(event) if n not in run.events_of_weights] if event >= 0 else []
    known, wanted = [event, *beside], [*numbers]
    alike = _from_births(run, culprit, [*known, *line], wanted) if line else None
    return alike or _from_births(run, culprit, known, wanted)


def _from_births(run: Run, culprit: Operand, known: list[int], numbers: list[int]) -> Fix | None:
    origin, wide = culprit.origin, _wider_than(culprit.dtype)
    births = _agreeing(run, known, wide)
    origins = [origin, *(graph.origin(run.recording, born) for born in births[1:])]
    edits = [_at_birth(run, born, where, wide) for born, where in zip(births, origins)]
    shown = tuple(sorted({edit for edit in edits if edit is not None}, key=lambda edit: (edit.file, edit.start)))
    change = DtypeChange(births=dict.fromkeys(births, wide))
    replay = run.after(change) if None not in edits and checks.sound(run, shown, change) else None
    if replay is None:
        return None
    for n in numbers:
        narrow = run.ops[n].outputs[:1] == (culprit.dtype,)
        if replay.ops[n].outputs[:1] != (wide,) or narrow and _lost_again(run, replay, n, True) is not None:
            return None
    return advise(origin.place, f"keep these values in {wide} from here on", edits=shown, tested=True)


def _agreeing(run: Run, births: list[int], wide: str) -> list[int]:
    """Births, the first of which is to be wider, and those of the operands that a call needs in the same dtype: both of
    a product."""
    event = births[0]
    for _ in range(_MOST_BIRTHS if event >= 0 else 0):
        replay = run.after(DtypeChange(births=dict.fromkeys(births, wide)))
        now = replay.ops if replay is not None else ()
        refusing = next((n for n, op in enumerate(now) if op.code and run.ops[n].phase in FORWARD), -1)
        if refusing < 0:
            break
        taken, had = zip(run.ops[refusing].inputs, now[refusing].inputs), run.recording.events[event].to
        births = [*births, *{i.event for i, dtype in taken if dtype == i.dtype == had} - {*births}]
    return births


_MOST_BIRTHS = 3
"""How many more lines may be edited with one."""


def _at_birth(run: Run, event: int, origin: Origin, wide: str) -> Edit | None:
    """The edit by which a birth's own line decides for a wider dtype; others may use a variable. A cast to the dtype of
    another tensor names the wide one instead."""
    if event < 0 or event in run.events_of_weights or not origin.place.stack:
        return None
    edit = editing.at_birth(run.recording, origin.kind, origin.place, wide)
    if edit is not None and effects.inside(edit, origin.place.stack[0]):
        return edit
    known = run.recording.events[event]
    followed = known.how == "cast" and known.reads and graph.place_of(run.recording, known.place) == origin.place
    cast = editing.of_cast(run.recording, origin.place, wide) if followed else None
    return cast[0] if cast is not None else None


def wide_here(run: Run, number: int, site: Place) -> Fix:
    """An island: one op in float32 inside a model of another dtype."""
    proposed = list(_of_operands(run, number))
    edits, made = _shown(run, number, proposed, far=True), run.ops[number].outputs[0]
    op = quoted(run.ops[number].op)
    change, why = (f"compute {op} in float32 here", "") if edits else _in_words(run, number)
    if not edits and (clipping := clipped_in_float32(run.recording.text, site)) is not None:
        edits, change = (clipping,), "compute the norm of the gradients in float32"
        why = f"only they fit {made}"
    instead = "let the model compute in bfloat16, whose range is as wide as float32's"
    if made in ("bfloat16", "bool"):
        instead = "keep these values in float32 from where they are made"
    if not edits and (edits := _cast_back(run, number, proposed)):
        change, why = f"compute {op} in float32 here, and cast back to {made} when the numbers are small again", ""
    elif not edits and made == "float16" and (again := _made_narrow_again(run, number)):
        alone = f"computing {op} in float32 ({short(site)}) is not enough"
        return _in_bfloat16(run, number, instead, f"{alone}, because {again} to {made}, where it overflows", named=site)
    elif not edits and run.ops[number].autocast and made == "float16":
        region = _in_bfloat16(run, number, instead)
        fix = advise(site, change, why, others=(instead,))
        return replace(region, alternatives=(fix.why,)) if region.edits else fix
    return advise(site, change, why, edits=edits, others=(instead,), tested=True)


def _in_words(run: Run, number: int) -> tuple[str, str]:
    """How to compute an op in float32 where no edit is known. Under autocast, casting its operands changes nothing."""
    op = quoted(run.ops[number].op)
    if _under_autocast(run.ops[number], ("float32",)) != ("float32",):
        return f"compute {op} in float32 here, outside autocast", "it casts float32 operands back"
    return f"cast the operands of {op} to float32 here", ""


def _under_autocast(op: Op, given: tuple[str, ...]) -> tuple[str, ...]:
    """The dtypes that autocast, where it is on for an op, makes of operands."""
    device, _, region = op.autocast.partition(":")
    return autocast.cast(autocast.policy(op.op, name_of(op), device), given, region) if region else given


def _in_bfloat16(run: Run, number: int, change: str, why: str = "", named: Place = graph.NOWHERE) -> Fix:
    """The model in bfloat16, where autocast or a line of the program decided for float16. Weights that are trained
    keep their dtype: bfloat16 has fewer digits."""
    origin = run.operand(run.ops[number], 0, None).origin
    region = regions.statement(run.recording.text, origin.place) if origin.kind == "autocast" else None
    if region is None:
        edits = () if run.recording.meta.get("trains") else _all_in_bfloat16(run)
        return advise(origin.place, change, why, named=named, edits=edits, tested=True)
    edits = one(editing.dtype_keyword(run.recording, region, "bfloat16"))
    sound = checks.sound(run, edits, DtypeChange(autocast="bfloat16"))
    return advise(region, change, why, named=named, edits=edits if sound else ())


def compute_wide(run: Run, number: int, alternatives: tuple[str, ...]) -> Fix:
    """One op in a wider dtype than that in which numbers become zero that something divides by."""
    op, site = run.ops[number], run.place(run.ops[number])
    wide = _made_wide(op)
    casts, used = is_cast(op), run.used_as(number) if is_cast(op) else ""
    edits = _shown(run, number, [_of_cast(run, number)] if casts else _of_operands(run, number))
    kept = used or run.operand(op, 0, None).shown if casts and op.inputs else ""
    this = f"keep {quoted(kept)}" if kept else f"compute {quoted(op.op)}"
    if edits:
        return advise(site, f"{this} in {wide}", edits=edits, others=alternatives, tested=True)
    if not casts and (edits := _cast_back(run, number, list(_of_operands(run, number)), _is_divided)):
        why = f"{this} in {wide}, and cast back to {op.outputs[0]} behind what is computed from it"
        return advise(site, why, edits=edits, others=alternatives, tested=True)
    scaled = f", or scale {'it' if used else 'these values'} up before the cast"
    back = scaled if casts else ", and cast back only what is divided by it"
    return advise(site, f"{this} in {wide}{back}", others=alternatives)


def cast_wide(run: Run, number: int) -> Fix:
    """A cast that makes small values zero."""
    site, kept = run.place(run.ops[number]), run.used_as(number)
    what, them = (quoted(kept), "it") if kept else ("these values", "them")
    scale = f"scale {them} up before the cast"
    if edits := _shown(run, number, [_of_cast(run, number)], far=True):
        return advise(site, f"keep {what} in float32", edits=edits, others=(scale,), tested=True)
    return advise(site, f"keep {what} in float32, or {scale}")


def scale_loss(run: Run, site: Place, culprit: Operand) -> Fix:
    """A loss scaler, with the lines to type where the program's text shows its training step. A scaler is for the steps
    of an optimizer; without one, a dtype of a wider range comes first."""
    if not run.recording.updates:
        return _wider_range(run, site, culprit)
    instead = ("compute this part in bfloat16 or float32",)
    step = next((u.place for u in run.recording.updates if u.place >= 0), -1)
    lines = wide_weights.scaling_lines(run.recording, graph.place_of(run.recording, step)) if step >= 0 else ()
    if lines:
        return advise(
            site, "scale the loss, so that its gradients fit float16", kind="plan", others=instead, lines=lines
        )
    scaled = "scale the loss (torch.amp.GradScaler), so that its gradients fit float16"
    return advise(site, scaled, kind="plan", others=instead)


_SCALE = 14
"""The exponent of a scale by hand: gradients up to 4 stay finite in float16."""


def _wider_range(run: Run, site: Place, culprit: Operand) -> Fix:
    begins = next((run.place(op) for op in run.ops if op.phase == "backward" and name_of(op) == "ones_like"), None)
    at = f"at {short(begins)}, " if begins is not None and begins.stack else ""
    smallest = f"{DTYPES['float16'].smallest / 2**_SCALE:.0e}"
    scaled = (
        f"{at}multiply the loss by 2**{_SCALE}; after the backward pass, cast the gradients to float32 and divide them "
        f"by 2**{_SCALE} (gradients down to {smallest} do not become zero then)"
    )
    born = culprit.origin.place
    place = born if born.stack else site
    if edits := _all_in_bfloat16(run):
        lines = dict.fromkeys(f"{os.path.basename(e.file)}:{e.start[0]}" for e in edits)
        others = " and ".join(line for line in lines if line != short(place))
        too = f"; change {others}, too" if others else ""
        why = f"its range is as wide as float32's{too}"
        return advise(place, "use bfloat16 instead of float16", why, edits=edits, others=(scaled,), tested=True)
    if not born.stack:
        return advise(site, "compute this part in bfloat16 or float32", kind="plan", others=(scaled,))
    why = f"use bfloat16 or float32 instead of float16 at {short(born)}"
    if born.stack[:1] != site.stack[:1]:
        why += f", and cast the inputs at {short(site)} to the same dtype"
    return advise(born, why, kind="plan", named=born, others=(scaled,))


# ---------------------------------------------------------------- the edits


def _wider_than(dtype: str) -> str:
    """The dtype in which to keep what does not fit a dtype."""
    return "float64" if dtype == "float32" else "float32"


def _made_wide(op: Op) -> str:
    """The dtype that an op's result should have instead of its own."""
    return _wider_than(op.outputs[0] if op.outputs else "")


def _of_cast(run: Run, number: int) -> tuple[Edit, ...]:
    """The edit by which a cast keeps its values, if the call itself names the dtype: other casts may use a variable."""
    op = run.ops[number]
    place = run.place(op)
    if op.op not in NAMED_CASTS or op.phase not in FORWARD or not op.inputs or run.weight_of(op.inputs[0]):
        return ()
    # a module's cast, where the same call casts weights
    if any(o.place == op.place and is_cast(o) and o.inputs and run.weight_of(o.inputs[0]) for o in run.ops):
        return ()
    edit = editing.at_birth(run.recording, "cast", place, _made_wide(op))
    return (edit,) if edit is not None and effects.inside(edit, place.stack[0]) else ()


def whole_wide(run: Run, number: int, wide: str) -> tuple[Edit, ...]:
    """The edits that cast the operands of integer arithmetic to wider integers; none where its result would be cast or
    written to the narrow ones again, or something objects."""
    replay, made = run.after(DtypeChange(results={number: wide})), run.ops[number].outputs[0]
    kept = lambda n: replay is not None and replay.ops[n].outputs[:1] == (wide,)
    below = [n for n, _ in run.below([number], lambda n: run.moves(n) and kept(n), FAR)]
    if replay is None or any(
        (is_cast(run.ops[n]) or writes(run.ops[n])) and run.ops[n].outputs[:1] == (made,) for n in below
    ):
        return ()
    found = (edits for edits in _of_operands(run, number, wide) if checks.sound(run, edits, replay.change))
    return next(found, ())


def _of_operands(run: Run, number: int, whole: str = "") -> Iterator[tuple[Edit, ...]]:
    """The edits that cast operands of a call so that its result is wide: of all narrow ones, else of the first.
    ``whole``: the integers that it should be."""
    op = run.ops[number]
    if op.phase not in FORWARD or writes(op) or any(run.weight_of(i) for i in op.inputs):
        return
    place, wide = run.place(op), whole or _made_wide(op)
    tensors = [n for n, i in enumerate(op.inputs) if i.producer < 0 or run.of_call(i.producer) != number]
    narrow = [n for n in tensors if op.inputs[n].dtype in REAL and wider(wide, op.inputs[n].dtype)]
    narrow = [n for n in tensors if (op.inputs[n].dtype,) == op.outputs[:1]] if whole else narrow
    edits = dict[int, Edit]()
    for n in narrow:
        at = run.written_at(op, n)
        taken = CallOperand(place, op.op, op.module, argument_of(op, n), at) if at is not None else None
        edit = editing.at_call(run.recording, taken, wide) if taken is not None else None
        if edit is not None:
            edits[n] = edit
    if not edits:
        return
    for chosen in (narrow, list(edits)[:1]):
        if all(n in edits for n in chosen) and _makes_wide(op, chosen, wide):
            yield tuple(edits[n] for n in chosen)


def _makes_wide(op: Op, cast: list[int], wide: str) -> bool:
    """Whether an op's result is wide by the dtype rules, if these operands are."""
    before = tuple(i.dtype for i in op.inputs)
    given = tuple(wide if n in cast else dtype for n, dtype in enumerate(before))
    outcome = predict(op, before, _under_autocast(op, given))
    return isinstance(outcome, Gives) and outcome.dtypes[:1] == (wide,)


def _all_in_bfloat16(run: Run) -> tuple[Edit, ...]:
    """The edits by which every line that decides for float16 decides for bfloat16; none where one of them cannot be
    edited, or where float16 would be left."""
    recording = run.recording
    edits = dict[Place, Edit]()
    taken = {i.event for op in run.ops if op.phase in FORWARD for i in op.inputs if _is_forwards_float16(run, i)}
    roots = sorted(n for n in taken if n >= 0 and not (recording.events[n].parents or recording.events[n].reads))
    for number in roots:
        event = recording.events[number]
        born = graph.place_of(recording, event.place)
        here = event.how in _MADE_HERE and born.stack[:1] == (born.user_frame,)
        edit = editing.at_birth(recording, event.how, born, "bfloat16") if here else None
        if edit is None or not effects.inside(edit, born.stack[0]):
            return ()
        edits[born] = edit
    found = tuple(sorted(edits.values(), key=lambda edit: (edit.file, edit.start)))
    change = DtypeChange(births=dict.fromkeys(roots, "bfloat16"))
    replay = run.after(change) if checks.sound(run, found, change) else None
    return () if replay is None or any("float16" in now.inputs for now in replay.ops) else found


_MADE_HERE = ("cast", "factory", "conversion", "parameter")
"""Births at a line that itself says the dtype."""


def _is_forwards_float16(run: Run, operand: Input) -> bool:
    """Whether an operand is float16 and no gradient, whose dtype follows from the forward's."""
    backward = operand.producer >= 0 and run.ops[operand.producer].phase == "backward"
    return operand.dtype == "float16" and not backward


_SMALL = "softmax", "log_softmax", "squash"
"""Ops whose results are small where their operands are large."""
_MOST_BACK = 4
"""How many calls in a row may need their operands cast back."""


def _cast_back(
    run: Run, number: int, proposed: Iterable[tuple[Edit, ...]], fits: Callable[[Op, int], bool] | None = None
) -> tuple[Edit, ...]:
    """The edits by which an op computes in a wider dtype, and its results, once they fit, are cast back where a later
    call would refuse them; none where they do not fit there, or something objects. ``fits``: whether an op's result
    does, given the index of the operand that does not."""
    narrow, wide = run.ops[number].outputs[0], _made_wide(run.ops[number])
    results, replay, casts = {number: wide}, None, list[int]()
    for _ in range(_MOST_BACK):
        replay = run.after(DtypeChange(results=dict(results)))
        if replay is None:
            return ()
        refusing = next((n for n, now in enumerate(replay.ops) if now.code and run.ops[n].phase in FORWARD), -1)
        if refusing >= 0:
            taken = zip(run.ops[refusing].inputs, replay.ops[refusing].inputs)
            makers = [i.producer for i, now in taken if (i.dtype, now) == (narrow, wide)]
        else:
            makers = list(_before_others(run, number, results))
            if not makers:
                break
        if not makers or not all(_fits(run, number, maker, fits or _is_small) for maker in makers):
            return ()
        makers = [_part(run, replay, number, maker, fits or _is_small) for maker in makers]
        casts += [n for n in makers if replay.ops[n].outputs[:1] != (narrow,)]  # the program casts the others itself
        results.update(dict.fromkeys(makers, narrow))
    back = [n for n in results if n != number]
    if fits is None and any(_divided_by_again(run, n) for n in back):
        return ()  # the range that was too wide at its upper end still is at its lower end
    if not back or replay is None or _lost_again(run, replay, number, True, back) is not None:
        return ()
    edits = editing.at_results(run.recording, casts, narrow)
    found = (given + edits for given in proposed if edits or not casts)
    return next((f for f in found if checks.sound(run, f, replay.change)), ())


def _part(run: Run, replay: Replay, number: int, maker: int, fits: Callable[[Op, int], bool]) -> int:
    """The op to cast instead of another one: the only operand that makes that one's result wide, if it is already the
    result of what fits."""
    made = replay.ops[maker].outputs[:1]
    given = [(i.producer, now) for i, now in zip(run.ops[maker].inputs, replay.ops[maker].inputs) if now in REAL]
    above = [n for n, now in given if (now,) == made]
    if len(above) != 1 or len(given) < 2 or above[0] < 0 or run.users[above[0]] != [maker]:
        return maker
    ready = any(_fits(run, number, i.producer, fits) for i in run.ops[above[0]].inputs)
    return above[0] if ready else maker


def _before_others(run: Run, number: int, until: Collection[int]) -> Iterator[int]:
    """The op below another one whose result goes into an op that also ran on other tensors: those may be narrow."""
    for above in graph.reached([number], lambda n: [user for user in run.users[n] if user not in until]):
        users = [run.ops[user] for user in run.first_users[above]]
        if any(op.phase in FORWARD and op.count > run.ops[above].count for op in users):
            yield above
            return


def _fits(run: Run, number: int, later: int, fits: Callable[[Op, int], bool]) -> bool:
    """Whether a later op's result fits the narrow dtype, although the result of an op does not that it was computed
    from: one of the ops between them makes it so."""
    if later <= number:
        return False
    below = {number}
    for n in range(number + 1, later + 1):
        if any(i.producer in below for i in run.ops[n].inputs):
            below.add(n)
    between = below.intersection(graph.ops_above(run.ops, [later])) - {number}
    taken = ((run.ops[n], index) for n in between for index, i in enumerate(run.ops[n].inputs) if i.producer in below)
    return any(fits(op, index) for op, index in taken)


def _is_small(op: Op, operand: int) -> bool:
    """Whether an op's result is small where one of its operands is large: a softmax, a norm, a division by it."""
    return tagged(op.op, *_SMALL) or tagged(op, *_SMALL) or _divides(op, operand)


def _divided_by_again(run: Run, number: int) -> bool:
    """Whether sums of an op's results divide something: what was divided by a large number may be zero."""
    if not tagged(name_of(run.ops[number]), "divide"):
        return False

    def summed(n: int) -> list[int]:
        return [user for user in run.users[n] if is_move(run.ops[user]) or tagged(run.ops[user], "total")]

    below = set(graph.reached([number], summed))
    sums = {n for n in below if tagged(run.ops[n], "total")}
    takers = (run.ops[user] for n in sums for user in run.users[n])
    return any(_divides(op, n) for op in takers for n, i in enumerate(op.inputs) if i.producer in sums)


def _is_divided(op: Op, operand: int) -> bool:
    """Whether an op's result is no smaller than usual although one of its operands is tiny: what divides by it, a
    logarithm."""
    return tagged(op, "pole") and operand == len(op.inputs) - 1


def _divides(op: Op, operand: int) -> bool:
    """Whether an operand is what an op divides by: ``1 / x`` is ``x.__rdiv__(1)``, a reciprocal and a product."""
    name = name_of(op)
    return name in ("reciprocal", "rdiv") or tagged(name, "divide") and operand == 1


# ---------------------------------------------------------------- what may object


def _widened(run: Run, number: int) -> Replay | None:
    """The run with the result of an op in the wide dtype."""
    return run.after(DtypeChange(results={number: _made_wide(run.ops[number])}))


def _shown(run: Run, number: int, proposed: Iterable[tuple[Edit, ...]], *, far: bool = False) -> tuple[Edit, ...]:
    """The first edits that widen an op's result and that nothing objects to. ``far``: what is computed from the result
    must stay wide, too, because it may be as large."""
    replay = _widened(run, number)
    if replay is None or _lost_again(run, replay, number, far) is not None:
        return ()
    changing = (edits for edits in proposed if any(edit.before != edit.after for edit in edits))
    return next((edits for edits in changing if checks.sound(run, edits, replay.change)), ())


@dataclass(frozen=True)
class _Lost:
    """The op from which on a wide result is of no use."""

    op: Op
    narrows: bool
    """Whether it makes the result narrow again; else it also ran on other tensors, so that it cannot be followed."""


def _lost_again(run: Run, replay: Replay, number: int, far: bool, until: Collection[int] = ()) -> _Lost | None:
    """Where the wide result would be made narrow again, or cannot be followed (the operands of one call are prepared
    alike). ``until``: ops whose results are meant to be narrow."""
    wide = _made_wide(run.ops[number])
    waiting, seen, small = [number], {number}, set[int]()
    while waiting:
        above = waiting.pop()
        for user in run.first_users[above]:
            op = run.ops[user]
            if op.phase in FORWARD and op.count > run.ops[above].count:
                return _Lost(op, narrows=False)
            if above not in small and _narrows_again(op, replay.ops[user], above, wide):
                return _Lost(op, narrows=True)
            # what is small again fits the narrow dtype: from there on it may be cast back
            index = next((n for n, i in enumerate(op.inputs) if i.producer == above), 0)
            if far and (above in small or _is_small(op, index)):
                small.add(user)
            goes_on = is_move(op) or is_cast(op) or far and op.phase in FORWARD and not REAL.isdisjoint(op.outputs)
            if user not in seen and user not in until and goes_on:
                seen.add(user)
                waiting.append(user)
    return None


def _made_narrow_again(run: Run, number: int) -> str:
    """Where an op's wide result would be made narrow again, as a reason; empty where that is not known."""
    replay = _widened(run, number)
    lost = _lost_again(run, replay, number, far=True) if replay is not None and not checks.refused_in(replay) else None
    if lost is None or not lost.narrows:
        return ""
    return f"{quoted(lost.op.op)} at {short(run.place(lost.op))} would cast the result back"


def _narrows_again(op: Op, now: Carried, above: int, wide: str) -> bool:
    """Whether an op casts what another one made, or stores it in something narrower."""
    taken = [n for n, i in enumerate(op.inputs) if i.producer == above]
    into = destination(op)
    stored = now.inputs[into] if 0 <= into < len(now.inputs) and into not in taken else wide
    made = now.outputs[0] if is_cast(op) and now.outputs else wide
    return any(wider(wide, dtype) for dtype in (made, stored, *(now.inputs[n] for n in taken)))
