"""Remedies where a value is used: its dtype is right where it was made, or only the refused call can be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from os.path import commonprefix

from .. import graph
from ..foresight import refused_with
from ..records import Edit, Fix, Frame, Op, Operand, Place
from ..source import arrays, brackets, codes, dictionaries, editing, expressions, operands, parameters, regions
from ..source.inverted import masks as inverted_masks
from ..source.optimizers import ByHand
from ..tables.dtypes import COMPLEX, FLOATING, HALF, INTEGERS, STORAGE_ONLY, wider
from ..tables.english import listed, quoted
from ..tables.operators import tagged
from ..tables.rule_language import Refuses
from . import alternatives, autocast_off, cast_alike, checks, effects, plans, wide_weights
from .advice import advise
from .autocast_off import Off
from .case import Case, cast_what, one, short, spell
from .collision import POINTERS


def half_gradients(case: Case) -> Iterator[Fix]:
    """A loss scaler refuses float16 gradients: the trained weights stay in float32 and autocast computes in half."""
    if case.refused.code != "DT116":
        return
    # where the forward runs under autocast, only what made or cast the weights keeps them from float32
    edit, keeps = None, "keep the trained weights in float32 (your autocast still computes in 16 bits)"
    if case.origin.kind in ("cast", "parameter") and any(op.autocast for op in case.recording.ops):
        edit = editing.at_birth(case.recording, case.origin.kind, case.here, "float32")
    if case.origin.kind == "load" and dictionaries.loads_state(case.recording, case.here):
        edit = dictionaries.at_load(case.recording, case.here, "float32")
    if edit is None and case.origin.kind == "cast" and any(op.autocast for op in case.recording.ops):
        edit = editing.uncast(case.recording, editing.from_user(case.here))
        keeps = "remove this cast: the weights stay in float32 (your autocast still computes in 16 bits)"
    if every := _all_kept_wide(case, edit):
        born = graph.place_of(case.recording, case.recording.events[case.witness.event].place)
        change = "keep the trained weights in float32 where they are made (your autocast still computes in 16 bits)"
        yield advise(born, change, edits=every, kind="plan")
        return
    change, lines = keeps, tuple[ByHand, ...]()
    if edit is None:
        change, lines = wide_weights.advice(case.recording, case.origin, case.witness.dtype, case.site)
    yield advise(case.here, change, edits=edit, kind="plan", lines=lines)


def _all_kept_wide(case: Case, edit: Edit | None) -> tuple[Edit, ...]:
    """The edits that make all trained weights float32, where one edit is not enough or would widen others in vain."""
    if not wide_weights.in_autocast(case.recording):
        return ()
    every = wide_weights.where_all_were_made(case.recording, case.witness.dtype, case.witness.event)
    enough = edit is not None and len(every) < 2 and wide_weights.made_only_trained(case.recording, case.here)
    return every if not enough else ()


def into_widened(case: Case) -> Iterator[Fix]:
    """What is written into a tensor that was widened on purpose, or made like another, is cast to its dtype, whichever
    it is."""
    into = next((w for w in case.refused.witnesses if w.index == 0), None)
    right = case.verdict.principle in ("widened destination", "made like another")
    if not right or into is None or case.wanted is None:
        return
    edits = case.cast_like(into) or case.cast_at_call(case.wanted)
    change = f"cast {quoted(case.culprit.shown)} to {case.wanted} here"
    yield advise(case.site, change, case.verdict.reason, edits=edits, kind="cast")


def imaginary_part(case: Case) -> Iterator[Fix]:
    """Complex numbers become real by a choice of the program's: a cast would drop the imaginary part."""
    if case.culprit.dtype not in COMPLEX or case.wanted in COMPLEX and case.refused.wants != "kernel":
        return
    change = f"pass .real, .imag or .abs() of {quoted(case.culprit.shown)}"
    yield advise(case.site, change, f"{quoted(case.refused.op)} takes real numbers here", kind="call")


def made_complex(case: Case) -> Iterator[Fix]:
    """A real tensor into which complex numbers are written is complex from where its own memory was made: what was
    computed before stays real."""
    if case.verdict.principle != "complex beside real" or not case.writes_into or case.wanted is None:
        return
    made = case.recording.ops[case.witness.producer] if case.witness.producer >= 0 else None
    place = graph.place_of(case.recording, made.place) if made is not None and made.effect == "new" else case.site
    if place.stack[:1] != case.site.stack[:1] and _own(place):
        edits = one(editing.where_complete(case.recording, place, case.wanted))
        what = cast_what(edits) or quoted(case.culprit.shown)
        change = f"cast {what} to {case.wanted} here"
        yield advise(place, change, "complex numbers are written into it", edits=edits, kind="cast")


def asked_in_the_call(case: Case) -> Iterator[Fix]:
    """Weights that a call computes with in a wider dtype, by its own cast of the other operand, are cast there, too."""
    if case.verdict.principle != "asked in the call" or case.wanted is None:
        return
    edits, name = case.cast_at_call(case.wanted), quoted(case.culprit.shown)
    keep = f"keep these weights in {case.wanted} at {short(case.here)}"
    change = f"cast {name} to {case.wanted} here"
    yield advise(case.site, change, case.verdict.reason, edits=edits, kind="cast", others=(keep,))


def follows(case: Case) -> Iterator[Fix]:
    """One number that meets tensors is cast to their dtype, whichever it is: another call may bring another one."""
    larger = (w for w in case.refused.witnesses if w.dtype == case.wanted and prod(w.shape) > 1)
    if case.verdict.principle != "single number" or not (case.site.stack and case.site.stack[0].user):
        return
    for other in larger:
        if edits := case.cast_like(other):
            change = (
                f"cast {quoted(case.culprit.shown)} to the dtype of {edits[0].change.like.removesuffix('.dtype')} here"
            )
            yield advise(case.site, change, case.verdict.reason, edits=edits, kind="cast")


def cut_in_the_call(case: Case) -> Iterator[Fix]:
    """Numbers that the refused line itself cuts to integers, for a call that takes none, keep their fractions."""
    recording, refused = case.recording, case.refused
    line = graph.lineage(recording, case.witness.event)
    source = line.root.source[:1] if case.origin.kind == "cast" and line is not None else ()
    if not FLOATING.intersection(source) or not case.passed or case.culprit.dtype in FLOATING | COMPLEX:
        return
    same = (case.here.file, case.here.line) == (case.site.file, case.site.line)
    again = refused_with(refused, {case.witness.index: source[0]})
    if same and refused.wants in ("float", "kernel") and not isinstance(again, Refuses):
        edits = one(editing.uncast(recording, case.here))
        why = f"{quoted(refused.op)} takes real numbers, and the cast cuts their fractions off"
        yield advise(case.here, "leave this cast out", why, edits=edits)


def divided_into(case: Case) -> Iterator[Fix]:
    """Integers that are divided into integers, which were made for that (``out=``), are rounded down there."""
    refused = case.refused
    into = next((w for w in refused.witnesses if w.argument == "out"), None)
    whole = into is not None and all(w.dtype in INTEGERS for w in refused.witnesses)
    if refused.code == "DT111" and whole and tagged(refused.op, "divide") and case.site.stack:
        edits = one(codes.floored(case.recording.text, case.site.stack[0]))
        why = f"{quoted(case.culprit.shown)} was made for integers"
        yield advise(case.site, 'round the quotient down: rounding_mode="floor"', why, edits=edits, kind="call")


def autocast_was_on(case: Case) -> Iterator[Fix]:
    """A call that ran under autocast before runs under autocast again; a region that is off gets what it takes."""
    off, ran = case.off, case.ran_under
    others = alternatives.at_site(case)
    if off is not None and off.change:
        yield advise(off.region, off.change, off.why, edits=off.edit, kind="autocast", others=others)
    elif off is None and ran is not None:
        device, _, dtype = ran.autocast.partition(":")
        region = f'torch.autocast("{device}", dtype={spell(dtype)})'
        like = f", as {short(case.in_region)} does" if case.in_region is not None else ""
        edits = one(wide_weights.under(case.recording, _outside(case, ran), region))
        yield advise(case.site, f"run this under {region}{like}", edits=edits, kind="autocast", others=others)


def hand_written_backward(case: Case) -> Iterator[Fix]:
    """The backward of a hand-written function runs under the autocast that its forward ran under."""
    ran = autocast_off.ran_in_forward(case.recording, case.refused)
    if ran is None or not case.site.stack:
        return
    device = ran.autocast.partition(":")[0]
    edits = regions.in_both_directions(case.recording.text, case.site.stack[0], device)
    change = (
        f'decorate forward with torch.amp.custom_fwd(device_type="{device}"), and backward with torch.amp.custom_bwd'
    )
    why = "autocast was on in forward and is off in backward"
    yield advise(case.site, change, why, edits=edits, kind="autocast", others=alternatives.at_site(case))


def _outside(case: Case, ran: Op) -> Place:
    """The refused call's place from the first frame outwards that did not run inside the earlier region: a function
    that both runs share is called under autocast already."""
    before = graph.place_of(case.recording, ran.place)
    body = regions.body(case.recording.text, before)
    inside = before.stack[: len(before.stack) - len(body.stack)] if body is not None else ()
    shared = {(frame.file, frame.function) for frame in inside}
    stack = case.site.stack
    level = next((n for n, f in enumerate(stack) if f.user and (f.file, f.function) not in shared), 0)
    return Place(stack[level:]) if shared else case.site


def off_words(off: Off) -> str:
    """That autocast is off inside a region, why, and what that does to the region around it."""
    why = f": {off.why}" if off.why else ""
    ends = f", and the autocast of {short(off.outer)} is off inside it, too" if off.outer is not None else ""
    return f"autocast is off in the region of {short(off.region)}{why}{ends}"


def trained_under_autocast(case: Case) -> Iterator[Fix]:
    """Weights that an optimizer trains are not narrowed: the other operand is cast, or autocast casts both.

    Weights that are trained in half are widened where that was decided.
    """
    region_words = next(iter(alternatives.autocast(case)), "")
    if not region_words or not case.witness.trained:
        return
    reason = ""
    if case.witness.dtype in HALF:
        edits: tuple[Edit, ...] = ()
        if (
            case.born == "float32"
            and case.origin.kind == "load"
            and dictionaries.loads_state(case.recording, case.here)
        ):
            edits = one(dictionaries.at_load(case.recording, case.here, "float32"))
        elif case.born == "float32":
            edits = one(editing.at_birth(case.recording, case.origin.kind, case.here, "float32"))
        words = f"{birth_words(case.culprit, case.born)}, {short(case.here)}" if case.born else ""
        place, change = case.here, region_words
        if edits and case.origin.kind == "load":  # in float32 they go with all that meets them
            change, words = "cast the loaded tensors to float32", region_words
            reason = f"they are trained, and {case.witness.dtype} loses small updates"
    else:
        place, edits, words = case.site, _at_boundary(case), ""
        change = region_words
        if edits:
            back = " and the result back" if len(edits) > 1 else ""
            change = f"cast the other operand{back} here, or {region_words}"
            reason = f"{quoted(case.culprit.shown)} is trained in {case.witness.dtype}"
        elif region := wide_weights.region_at(case.recording, place, case.half):
            yield advise(place, change, edits=region, kind="autocast", others=alternatives.at_site(case))
            return
    others = (*filter(None, (words,)), *alternatives.at_site(case))
    yield advise(place, change, reason, edits=edits, kind="cast" if edits else "plan", others=others)


def _at_boundary(case: Case) -> tuple[Edit, ...]:
    """The edit that casts the other operand to the trained weight's dtype, and the one that casts back what the
    function makes of it, where that goes on beside the narrow values."""
    weight = case.witness
    others = [w for w in case.refused.witnesses if w.dtype in HALF and not w.trained and w.holder is None]
    if not case.passed or len(others) != 1:
        return ()
    other = others[0]
    taken = case.taken(other)
    like = editing.at_call_like(case.recording, taken, weight)
    edits = one(like or editing.at_call(case.recording, taken, weight.dtype))
    back = editing.back_beside(case.recording, case.site, edits[0].before, other.dtype) if edits else None
    return (*edits, *one(back))


def integer_parameter(case: Case) -> Iterator[Fix]:
    """An integer that was made on purpose is not a trained parameter: it stays out of training. Of another tensor the
    program asks for a gradient in so many words."""
    if not case.passed or case.refused.pattern != "grad.requires_grad_int" or not case.origin.explicit:
        return
    if case.refused.op.startswith("requires_grad") and case.culprit.holder is None:
        return
    edits = one(parameters.untrained(case.recording.text, case.site.stack[0], case.refused.op))
    change = f"keep {quoted(case.culprit.shown)} out of training with requires_grad=False"
    yield advise(case.site, change, f"{case.culprit.dtype} cannot be trained", edits=edits, kind="plan")


def leaves_torch(case: Case) -> Iterator[Fix]:
    """A tensor for whose dtype numpy or another library has no equivalent is cast as it leaves torch."""
    if case.passed and case.refused.code == "DT120" and case.refused.wants == "kernel":
        yield _cast_here(case, "float32", f"cast {quoted(case.culprit.shown)} to float32 before it leaves torch")


def assigned(case: Case) -> Iterator[Fix]:
    """A gradient or ``.data`` that the program assigns is cast in that assignment."""
    refused = case.refused
    if refused.pattern == "grad.requires_grad_int" or not case.disagrees or not case.passed or case.wanted is None:
        return
    if refused.op in ("grad", "data") and refused.aten is None:
        yield _cast_here(case, case.wanted, f"cast {quoted(case.culprit.shown)} to {case.wanted} as it is assigned")


def right_elsewhere(case: Case) -> Iterator[Fix]:
    """A value that has its dtype on purpose is cast in this call: class numbers, masks, storage formats, indices."""
    wanted, refused = case.wanted, case.refused
    if refused.pattern == "grad.requires_grad_int" or not case.disagrees or not case.passed or wanted is None:
        return
    counted = refused.wants in ("integer", "bool") or wanted not in FLOATING and case.origin.kind == "cast"
    counts = counted and not graph.keeps(case.recording, case.witness.producer, case.witness.event, wanted)
    stored = case.culprit.dtype in STORAGE_ONLY
    no_module = case.origin.kind == "parameter" and wanted not in FLOATING  # none can be cast to integers
    if counts or stored or refused.wants == "float" and not _by_its_number(case) or _mask(case) or no_module:
        yield _cast_here(case, wanted, f"cast {quoted(case.culprit.shown)} to {wanted} at the call")


def _by_its_number(case: Case) -> bool:
    """Whether a tensor is of integers only because the number that fills it is one: no class numbers, a target."""
    origin = case.origin
    return origin.kind == "factory" and not origin.explicit and tagged(origin.op or "", "fills")


def _mask(case: Case) -> bool:
    return case.culprit.dtype == "bool" and case.wanted in FLOATING


def _cast_here(case: Case, dtype: str, why: str) -> Fix:
    # the birth of some dtypes leaves no choice: integers that a call always gives, bytes, parameters to be integers
    born = case.origin.op or ""
    free = not tagged(born, "indices") and born not in arrays.READS
    free = free and (case.origin.kind != "parameter" or dtype in FLOATING)
    free = free and not checks.objection_to(case, effects.born_as(case, case.origin.place, dtype))
    elsewhere = (f"use {dtype} instead of {case.culprit.dtype} at {short(case.origin.place)}",) if free else ()
    return advise(case.site, why, edits=case.cast_at_call(dtype), kind="cast", others=elsewhere)


def scalar_limit(case: Case) -> Iterator[Fix]:
    """A number that the dtype cannot hold is replaced by the dtype's own limit."""
    if case.refused.wants != "fits":
        return
    dtype = dict(case.refused.dtypes).get("type", "")
    edit = editing.scalar(case.recording, case.site, case.culprit.name, dtype)
    limit = edit.after if edit else _limit(case, case.culprit)
    if edit is None and dtype:
        edit = editing.constant(case.recording, case.taken(case.witness), case.culprit.name, dtype)
        limit = edit.after if edit else limit
    place = case.here if edit is None and case.here.stack else case.site  # where the number is written
    yield advise(place, f"use a value that the dtype can hold, such as {limit}", edits=edit, kind="scalar")


def _limit(case: Case, number: Operand) -> str:
    """The lowest or highest number of the dtype that refused one, as the program would write it."""
    refused, site, text = case.refused, case.site, case.recording.text
    tensors = (w for w in refused.witnesses if not w.dtype.startswith("python"))
    frame, dtype = site.stack[0] if site.stack else None, dict(refused.dtypes).get("type", "")
    names = (
        w.name or frame and operands.argument(text, frame, refused.op, refused.module, w.argument, w.index)
        for w in tensors
    )
    name = next((f"{name}.dtype" for name in names if name), spell(dtype) if dtype else "x.dtype")
    return f"torch.{'iinfo' if 'int' in dtype else 'finfo'}({name}).{'min' if number.name.startswith('-') else 'max'}"


def lacks_brackets(case: Case) -> Edit | None:
    """The edit that puts comparisons into brackets between which the program wrote ``&``, which has no kernel for what
    they compare. One side may be a mask."""
    refused = case.refused
    if refused.wants not in ("kernel", "integer", "bool") or not case.passed:
        return None
    mask = any(w.dtype == "bool" for w in refused.witnesses)
    return brackets.around_comparisons(case.recording.text, case.site.stack[0], int(mask))


def bracketed(case: Case) -> Iterator[Fix]:
    """Comparisons that lack their brackets get them: no cast gives what the program wants to know."""
    if (edit := lacks_brackets(case)) is not None:
        why = "&, | and ^ bind closer than a comparison does"
        yield advise(case.site, "put each comparison into brackets", why, edits=edit, kind="call")


def inverted(case: Case) -> Iterator[Fix]:
    """A mask that is subtracted from 1 is inverted as truth values are, with those that its function inverts so."""
    if case.culprit.dtype != "bool" or case.refused.wants != "kernel" or not case.site.stack:
        return
    ops, frame = case.recording.ops, lambda op: graph.place_of(case.recording, op.place).stack[:1]
    made = {f for op in ops if "bool" in op.outputs for f in frame(op)}
    ran = {f for op in ops if op.op == case.refused.op for f in frame(op)}
    edits = inverted_masks(case.recording.text, case.site.stack[0], made, ran)
    if edits:
        why = "truth values are inverted by ~, and torch subtracts none"
        yield advise(case.site, f"invert {quoted(case.culprit.shown)} with ~", why, edits=edits, kind="call")


def no_kernel(case: Case) -> Iterator[Fix]:
    """Where an operation has no kernel for a dtype, its operand is cast in the call.

    Half precision is computed in float32 and its result cast back; the results of other dtypes are not.
    """
    if case.refused.wants != "kernel":
        return
    yield from _without_cast(case)
    yield from _out_of_autocast(case)
    yield from _as_other_callers(case)
    change, why, number = _without_kernel(case)
    edits = case.cast_at_call(number) if case.passed and number else ()
    if case.passed and not number and case.culprit.dtype in HALF:
        casts, back = case.in_fallback("float32")
        edits = (*casts, *back)
        if casts and not back:
            later = f"cast its results if later code needs {case.culprit.dtype}"
            change = f"compute {quoted(case.refused.op)} in float32; {later}"
    elsewhere = f"use a dtype other than {case.culprit.dtype} at {short(case.here)}"
    own_call = case.passed and not edits
    called = expressions.callee(case.recording.text, case.site.stack[0]) if own_call else None
    if called and not case.refused.op.endswith(called.rpartition(".")[2]):
        yield from _given_wider(case, called, elsewhere)
        why = f"{quoted(case.refused.op)} runs inside {called}(), which the program cannot change"
        yield advise(case.here, elsewhere, why, named=case.here)
        return
    yield advise(case.site, change, why, edits=edits, kind="cast", others=(elsewhere,))


def _as_other_callers(case: Case) -> Iterator[Fix]:
    """A function of the program that ran through this line for another caller, in a dtype for which there is a kernel,
    is given that dtype here, too: what it makes beside follows what it is given."""
    refused, stack = case.refused, case.site.stack
    same = (op for op in case.recording.ops if op.op == refused.op and refused.aten in (op.aten, None) and op.inputs)
    frames = lambda op: graph.place_of(case.recording, op.place).stack
    ran = {op.inputs[0].dtype for op in same if _other_caller(frames(op), stack)}
    if len(ran) != 1 or case.culprit.dtype not in HALF or not ran <= {"float32", "float64"}:
        return
    (dtype,) = ran
    why = f"{quoted(refused.op)} has no kernel for {case.culprit.dtype}, and ran here in {dtype} for another caller"
    for place, edit in editing.at_callers(case.recording, case.taken(case.witness), dtype, may_reassign=True):
        change = f"cast {quoted(edit.before)} to {dtype} where it is passed on"
        yield advise(place, change, why, edits=edit, kind="cast")


def _other_caller(ran: tuple[Frame, ...], stack: tuple[Frame, ...]) -> bool:
    return len(ran) > 1 < len(stack) and ran[0] == stack[0] and ran[1] != stack[1]


def _given_wider(case: Case, called: str, elsewhere: str) -> Iterator[Fix]:
    """Where a function that the program cannot change has no kernel for 16 bits, all of its arguments that have them
    are cast together: of two dtypes, it refuses what it makes of both. Its result is cast back; an object is not."""
    dtype, refused = case.culprit.dtype, case.refused
    if dtype not in HALF or _made_of_weights(case):
        return
    same = {name for name, had in refused.beside if had == dtype}
    casts = editing.at_arguments(case.recording, case.site, same, dtype, "float32")
    a_class = called.rpartition(".")[2][:1].isupper()
    back = one(editing.back_in_fallback(case.recording, case.site, casts[0].before, dtype)) if casts else ()
    change = f"cast {listed([quoted(edit.before) for edit in casts])} to float32 for {called}()"
    later = (
        "" if back and not a_class else f", and what is computed with it back to {dtype} where later code needs that"
    )
    why = f"{quoted(refused.op)}, which runs inside it, has no kernel for {dtype}"
    edits = (*casts, *(() if a_class else back))
    if casts:
        yield advise(case.site, change + later, why, edits=edits, kind="cast", others=(elsewhere,))


def _made_of_weights(case: Case) -> bool:
    """Whether what is refused was made of weights alone inside the function that is called: no argument is in it."""
    ops = case.recording.ops
    inside = lambda n: n >= 0 and ops[n].place == case.refused.place
    above = graph.reached([case.witness.producer], lambda n: [i.producer for i in ops[n].inputs] if inside(n) else [])
    taken = [i for n in above if inside(n) for i in ops[n].inputs if not inside(i.producer)]
    return bool(taken) and all(i.holder == "parameter" for i in taken)


def _without_cast(case: Case) -> Iterator[Fix]:
    """Values that the program itself cast to 16 bits, in a run whose weights have more: all that is computed from them
    meets operations without a kernel, not this one alone."""
    weights = {p.dtype for p in case.refused.model or case.recording.parameters}
    if case.culprit.dtype not in HALF or case.origin.kind != "cast" or not weights or weights & HALF:
        return
    if not case.origin.explicit or (edit := editing.uncast(case.recording, case.here)) is None:
        return
    change = f"leave this cast out, or cast back to {case.culprit.dtype} only what needs it"
    yield advise(case.here, change, f"{quoted(case.refused.op)} has no kernel for it", edits=edit)


def _out_of_autocast(case: Case) -> Iterator[Fix]:
    """A call that autocast itself gives a dtype without kernel, by casting what it is given, is made outside of
    autocast: a cast of its operands would be undone."""
    device, _, compute = case.refused.autocast.partition(":")
    given = {w.dtype for w in case.refused.witnesses if w.dtype in FLOATING}
    if compute != case.culprit.dtype or given == {compute} or not case.passed or not case.site.stack:
        return
    region = f'torch.autocast("{device}", enabled=False)'
    cast = case.cast_at_call("float32") if case.witness.dtype == compute else ()
    edits = (*one(editing.under(case.recording, case.site.stack[0], region)), *cast)
    change = f"call {quoted(case.refused.op)} under {region}, with all operands in float32"
    why = f"autocast casts what it is given to {compute}, for which it has no kernel"
    whole = len(edits) > (case.witness.dtype == compute)
    yield advise(case.site, change, why, edits=edits if whole else (), kind="autocast")


def _without_kernel(case: Case) -> tuple[str, str, str]:
    """The change and its reason in words, and the dtype to cast to in the call if that is enough."""
    found, op, expected = case.culprit.dtype, case.refused.op, case.verdict.expected
    shown = quoted(case.culprit.shown)
    if case.witness.argument in POINTERS:
        return f"cast {shown} to int64 at the call", f"{quoted(op)} takes integers", "int64"
    if found in FLOATING and found not in HALF | STORAGE_ONLY:
        number = expected if expected and expected not in FLOATING | COMPLEX else ""
        return (
            f"cast {shown} to {number or 'int64 or bool'} at the call",
            f"{quoted(op)} takes integers or booleans",
            number,
        )
    if found in FLOATING:
        return f"compute {quoted(op)} in float32 and cast its result back", "", ""
    number = "int64" if found == "bool" or found in STORAGE_ONLY else "float32"
    number = expected if expected in FLOATING and expected else number
    invert = ", or invert a mask with ~" if found == "bool" and (tagged(op, "sum") or op == "neg") else ""
    return f"cast {shown} to {number} at the call{invert}", "", number


def left_cast(case: Case) -> Iterator[Fix]:
    """Where weights were left in another dtype by an earlier call, the call casts to whichever they have."""
    if case.verdict.principle != "left cast" or case.wanted is None:
        return
    other = next((w for w in case.refused.witnesses if w.holder is None and w.dtype == case.wanted), None)
    place, edits = case.site, tuple[Edit, ...]()
    if case.passed and other is not None:
        edits = one(editing.at_call_like(case.recording, case.taken(other), case.witness))
    elif not case.passed:
        place = editing.from_user(case.site)
        edits = one(editing.like_the_callee(case.recording, place, case.culprit.dtype))
    back = f"cast these weights back to {case.wanted} after the call that needs {case.culprit.dtype}"
    change = f"cast what is given to these weights to the dtype that they have, {case.culprit.dtype} or {case.wanted}"
    yield advise(place, change, case.verdict.reason, edits=edits, kind="cast", others=(back,))


def leaves_part(case: Case) -> Iterator[Fix]:
    """A part of a model that was cast by itself stays as it is: what leaves it is cast back where it widens other
    tensors, else where the rest refuses it."""
    wanted = case.wanted
    if case.verdict.principle != "cast of a part" or not case.disagrees or not case.passed or wanted is None:
        return
    if case.culprit.holder is not None or case.writes_into:
        return
    made = f"it comes from a part that was cast to {case.culprit.dtype}"
    whole = f"keep that part in {wanted}, {short(case.here)}"
    widened = _widened(case)
    if widened is not None and (edits := one(editing.at_widening(case.recording, widened, wanted))):
        what = cast_what(edits) or "the result"
        yield advise(widened, f"cast {what} back to {wanted} here", made, edits=edits, kind="cast", others=(whole,))
    if _scattered(case):
        edits = one(editing.at_birth(case.recording, "cast", case.here, wanted))
        why = f"what they return goes into {wanted} weights at many places"
        here = f"cast {quoted(case.culprit.shown)} back to {wanted} at each of them, as at {short(case.site)}"
        yield advise(case.here, f"keep these modules in {wanted}", why, edits=edits, others=(here,))
    change = f"cast {quoted(case.culprit.shown)} back to {wanted} here"
    yield advise(case.site, change, made, edits=case.cast_at_call(wanted), kind="cast", others=(whole,))


def _scattered(case: Case) -> bool:
    """Whether the cast of a part took several modules between others, such as all norms of a model, and the refused
    line's function uses what they made again."""
    if not expressions.used_again(case.recording.text, case.site, case.taken(case.witness).node(case.recording.text)):
        return False
    cast = [p.name.split(".")[:-1] for p in case.refused.model if _cast_here_to(case, p.event)]
    rest = [p.name.split(".") for p in case.refused.model if p.dtype == case.wanted]
    shared = len(commonprefix(cast))
    return len({tuple(names) for names in cast}) > 1 and any(names[:shared] == cast[0][:shared] for names in rest)


def _cast_here_to(case: Case, event: int) -> bool:
    made = case.recording.events[event] if event >= 0 else None
    return made is not None and graph.place_of(case.recording, made.place) == case.here


def _widened(case: Case) -> Place | None:
    """The program's own line where the culprit's value last widened other tensors."""
    return next((s.place for s in reversed(case.flow) if s.how == "promotion" and _own(s.place)), None)


def wide_island(case: Case) -> Iterator[Fix]:
    """A computation that is wide on purpose stays wide: its result is cast back where it widens other tensors, else
    where it is refused."""
    wanted = case.wanted
    kept = case.island or case.narrowed_elsewhere
    if not kept or not case.disagrees or wanted is None or case.culprit.holder is not None or case.writes_into:
        return
    if (case.origin.place.file, case.origin.place.line) == (case.site.file, case.site.line):
        return
    widened = _widened(case)
    if case.refused.op == "backward" and _own(case.here):  # a hook returns its result to the engine
        back = editing.back_at_return(case.recording, case.here)
        edits = one(editing.at_return(case.recording, case.here, wanted) or (back[1] if back is not None else None))
        on_purpose = f"the {case.culprit.dtype} of {short(case.here)} is there on purpose"
        change = f"cast only the returned value to {wanted}"
        yield advise(case.here, change, on_purpose, edits=edits, kind="cast", others=(f"compute in {wanted} there",))
        return
    if widened is None and case.handed_dtype:
        return  # the island's numbers are elsewhere: only its dtype came here
    purpose = next(words for kept, words in _PURPOSES if kept(case))
    narrow = f"compute in {wanted} at {short(case.here)}, if its range and precision are enough"
    for place, edits, where in _ways_back(case, widened, wanted):
        if edits or case.passed and widened is None:
            what = quoted(case.culprit.shown)
            if widened is not None and place is widened:
                what = cast_what(edits) or "the result"
            if len(edits) > 1:
                what = cast_what(edits) or f"{what} and what goes with it"
                where = where.replace("it is", "they are")
            reason = purpose.format(dtype=case.culprit.dtype, at=short(case.here))
            change = f"cast only {what} back to {wanted} {where}"
            yield advise(place, change, reason, edits=edits, kind="cast", others=(narrow,) if case.island else ())


_PURPOSES: tuple[tuple[Callable[[Case], bool], str], ...] = (
    (lambda case: case.island, "the {dtype} of {at} is there on purpose"),
    (
        lambda case: case.narrowed_elsewhere,
        "from {at} on, the program computes in {dtype} on purpose: it casts other results back itself",
    ),
)
"""Why a computation stays wide."""


def _ways_back(case: Case, widened: Place | None, wanted: str) -> Iterator[tuple[Place, tuple[Edit, ...], str]]:
    """Where the result can be cast back: as the program casts what another call of the same function returned; where
    the function that cast its own argument returns it, as all its other callers need it, too; where it widens other
    tensors; else in the refused call."""
    if (like := cast_alike.as_another_call(case, wanted)) is not None:
        place, edit, other = like
        yield place, (edit,), f"as {other} casts what that function returns"
    running = {(frame.file, frame.function) for frame in case.site.stack}
    left = bool(case.here.stack) and (case.here.stack[0].file, case.here.stack[0].function) not in running
    cast_from = case.flow[0].source if case.flow else ""
    back = editing.back_at_return(case.recording, case.here) if case.island and left and cast_from == wanted else None
    if back is not None:
        line, edit = back
        yield Place((line, *case.here.stack[1:])), (edit,), "where it is returned"
    elif case.island and left and widened is None and case.completed is not None:
        own = case.completed.stack[0], case.here.stack[0]
        if (own[0].file, own[0].function) == (own[1].file, own[1].function):
            kept = one(editing.where_complete(case.recording, case.completed, wanted))
            yield case.completed, kept, "where it is complete"
    if widened is not None:
        yield widened, one(editing.at_widening(case.recording, widened, wanted)), "where it is computed"
    if widened is None or case.passed:
        yield case.site, case.cast_at_call(wanted), "where it is used"


def _own(place: Place) -> bool:
    return bool(place.stack) and place.stack[0].user


def kept_wide(case: Case) -> Iterator[Fix]:
    """An average or a sum stays wide where it is updated: its values are cast where they replace the model's
    weights."""
    if not case.disagrees or not case.kept_wide or case.wanted is None:
        return
    chosen = f"it is updated in {case.culprit.dtype} on purpose ({short(case.here)})"
    change = f"cast only the value that becomes {quoted(case.culprit.shown)} to {case.wanted}"
    yield advise(case.here, change, chosen, named=case.here, kind="cast", others=alternatives.others(case))


def frozen_half(case: Case) -> Iterator[Fix]:
    """The result of weights that are kept in half precision and not trained is widened where the trained part takes
    it."""
    culprit, wanted = case.culprit, case.wanted
    if not case.disagrees or not case.passed or wanted is None or case.writes_into or culprit.holder is not None:
        return
    widens = culprit.dtype in HALF and wider(wanted, culprit.dtype)
    if not widens or case.origin.kind != "cast":
        return
    edits: tuple[Edit, ...] = ()
    if case.verdict.principle == "trained beside frozen":
        weight = next((w for w in case.refused.witnesses if w.trained), None)
        edits = (case.cast_like(weight) if weight is not None else ()) or case.cast_at_call(wanted)
    elif graph.frozen_island(case.recording, case.witness.producer, culprit.dtype):
        edits = case.cast_at_call(wanted)
    if edits:
        name, later = quoted(culprit.shown), f"compute in {wanted} from {short(case.here)} on"
        why = f"it comes from weights that are kept in {culprit.dtype} and not trained"
        yield advise(case.site, f"cast {name} to {wanted} here", why, edits=edits, kind="cast", others=(later,))


def birth_words(culprit: Operand, wanted: str | None) -> str:
    """What to change where a dtype was born, by the kind of origin."""
    kind, op = culprit.origin.kind, culprit.origin.op
    dtype = spell(wanted or "")
    made, name = "converted" if kind == "conversion" else "made", quoted(culprit.shown)
    if kind in ("factory", "conversion") and op is not None:
        return f"give {op}() dtype={dtype}" if tagged(op, "takes_dtype") else f"cast the result of {op}() to {wanted}"
    if kind == "conversion" and culprit.origin.explicit:
        return f"make the array {wanted}"
    if kind in ("factory", "conversion"):
        return f"make {name} {wanted} where it is {made}"
    return {
        "promotion": f"cast the result to {wanted} where it is computed",
        "parameter": f"create the module in {wanted}, or cast it with .to({dtype}) after it is made",
        "load": f"cast the loaded tensors to {wanted}, or cast the module after it has loaded them",
        "cast": f"cast to {wanted} here instead of {culprit.dtype}",
        "autocast": f"cast the result to {wanted} where it leaves the autocast region",
        "computed": f"cast the result to {wanted} where it is computed",
        "trained": f"cast the result to {wanted} where it leaves the weights that are trained",
        "reinterpret": f"view it as {wanted}",
        "worker": f"make {name} {wanted} in the dataset or collate function",
        "input": f"make {name} {wanted} before it is passed in",
    }.get(kind, f"make {name} {wanted}")


# ---------------------------------------------------------------- fused paths of attention modules


_OFF = "torch.backends.mha.set_fastpath_enabled(False)"


def fused_path(case: Case) -> Iterator[Fix]:
    """The fused path is left for the one that autocast reaches, or autocast computes in the dtype of half weights."""
    if case.verdict.principle != "fused path":
        return
    weights, computes = case.culprit.dtype, case.verdict.expected
    if weights in HALF:
        edits = plans.computing_in(case.recording, case.site, weights)
        yield advise(case.site, f"let autocast compute in {weights}, as the weights are", edits=edits, kind="plan")
        return
    change = "make the encoder with enable_nested_tensor=False"
    why = "nested tensors, which a padding mask leads to, go with no autocast"
    model = f"compute with a copy of the model in {computes}, without autocast"
    yield advise(case.site, change, why, kind="call", others=(f"turn the fused path off: {_OFF}", model))
