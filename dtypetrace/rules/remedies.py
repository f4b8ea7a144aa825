"""What to change: the remedy of a finding in words, and as a source edit where the text tells it.

The principle: at the birth where the dtype was an oversight, where it is used otherwise. What must
stay wide is not narrowed where it is computed; its result is brought back.
"""

from __future__ import annotations

import os

from .. import graph
from ..records import Edit, Fix, FlowStep, Operand, Place, Recording, Refused, Witness
from ..source import editing, expressions
from ..tables.dtypes import COMPLEX, COUNTERPART, FLOATING, HALF, STORAGE_ONLY, narrower, wider
from ..tables.operators import TAKES_DTYPE, is_destination


def remedy(
    recording: Recording,
    refused: Refused,
    culprit: Operand | None,
    chosen: Witness | None,
    flow: tuple[FlowStep, ...],
    in_line: str | None,
    site: Place,
) -> Fix | None:
    """What to change: in words, and as an edit where the text tells it."""
    if culprit is None or chosen is None:
        return None
    origin = culprit.origin
    here = origin.place if origin.place.stack else site
    wanted = wanted_dtype(refused, culprit, in_line)
    # a gradient, an optimizer's state and a destination are nothing that a cast in the call would help
    reached = not refused.derived and refused.phase != "optimizer" and refused.code != "DT111" and site.stack
    passed = reached and site.stack[0] is site.user_frame and not expressions.raises(site.stack[0])
    at_site = _at_site(refused, culprit, chosen, wanted, site) if passed or reached and culprit.handed else ""
    wanted = born_as(flow, wanted)
    if refused.code == "DT116":
        # where the forward runs under autocast, that cast is all that keeps them from float32
        edit = (
            editing.at_birth(recording, origin.kind, here, "float32")
            if origin.kind == "cast" and any(op.autocast for op in recording.ops)
            else None
        )
        return Fix(
            "plan",
            here,
            (edit,) if edit else (),
            True,
            "keep the trainable weights in float32 and let autocast compute in half",
        )
    autocast = _under_autocast(recording, refused)
    others = tuple(other for other in (autocast, at_site) if other)
    if autocast and chosen.trained:  # an edit that casts it would undo what the weights are trained in
        words = f"{_words(origin.kind, wanted, origin.op)}, {short(here)}" if wanted else ""
        return Fix(
            "plan",
            here if chosen.dtype in HALF else site,
            (),
            False,
            autocast,
            tuple(other for other in (words, at_site) if other),
        )
    if passed and (at_use := _at_use(recording, refused, culprit, chosen, wanted, site)) is not None:
        return at_use
    if refused.wants == "fits":
        edit = editing.scalar(recording, site, culprit.name)
        limit = edit.after if edit else _limit(refused, culprit, site)
        return Fix(
            "scalar", site, (edit,) if edit else (), True, f"use a value that the dtype can hold, such as {limit}"
        )
    if refused.wants == "kernel":
        why, number = _kernel(refused, culprit, in_line)
        call = (recording, site, refused.op, refused.module, chosen.argument, chosen.index)
        given = chosen.passed, chosen.position
        edits: tuple[Edit, ...] = ()
        if passed and number:
            edit = editing.at_call(*call, number, given)
            edits = (edit,) if edit else ()
        elif passed and culprit.dtype in HALF:
            edits = editing.in_fallback(*call, culprit.dtype, "float32", given)
            why = (
                why
                if len(edits) != 1
                else f"compute {refused.op} in float32, and cast what it gives back where {culprit.dtype} is needed"
            )
        elsewhere = f"keep {culprit.dtype} from being chosen at {short(here)}"
        if (
            passed
            and not edits
            and (called := expressions.callee(site.stack[0]))
            and not refused.op.endswith(called.rpartition(".")[2])
        ):
            return Fix(
                "dtype",
                here,
                (),
                False,
                f"{elsewhere}: {refused.op} runs inside {called}(), which is not the program's to change",
            )
        return Fix("cast", site, edits, True, why, (elsewhere,))
    if wanted is None or wanted == culprit.dtype:
        return Fix(
            "dtype", here, (), False, f"{refused.op} does not take {culprit.dtype}: make it another dtype here", others
        )
    if origin.kind == "autocast" and (body := graph.in_region(origin.place)) is not None:
        edit = (
            editing.at_birth(recording, "autocast", body, wanted)
            if body == origin.place or editing.assigns(body, culprit.written)
            else None
        )
        return Fix("dtype", body, (edit,) if edit else (), True, _words("autocast", wanted), others)
    if origin.op == "set_default_dtype":
        made = (f"give it dtype={_spell(wanted)} where it is made, {short(flow[1].place)}",) if len(flow) > 2 else ()
        return Fix(
            "dtype", here, (), False, f"leave the default dtype alone here, or make it {wanted}", (*made, *others)
        )
    if (
        origin.kind != "worker"
        and origin.place.stack
        and not origin.place.stack[0].user
        and origin.place.user_frame is not origin.place.stack[0]
    ):
        return _from_library(recording, culprit, chosen, flow, wanted, others)
    if (
        refused.phase == "optimizer"
        and refused.wants == "agree"
        and origin.kind == "cast"
        and any(_decided(recording, p.step) == here for p in refused.model or recording.parameters)
    ):
        why = "leave this cast out, or make it before the optimizer is made: the optimizer's state keeps the dtype that the weights had"
        return Fix("dtype", here, (), False, why)
    island = (
        origin.kind == "cast"
        and origin.explicit
        and narrower(wanted, culprit.dtype)
        and graph.computes(recording, origin, culprit.dtype)
    )
    written = is_destination(refused.op, chosen.argument, chosen.index)
    if island and culprit.holder is None and not written and not _same_line(origin.place, site):
        # what computes wide on purpose stays wide: its result comes back where it widened the stream, else where it is refused
        widened = next(
            (s.place for s in reversed(flow) if s.how == "promotion" and s.place.stack and s.place.stack[0].user), None
        )
        edit = (
            editing.at_widening(recording, widened, wanted)
            if widened
            else editing.at_call(
                recording,
                site,
                refused.op,
                refused.module,
                chosen.argument,
                chosen.index,
                wanted,
                (chosen.passed, chosen.position),
            )
        )
        if edit is not None or passed and not widened:
            why = f"{culprit.dtype} is on purpose at {short(here)}: bring the result back to {wanted} {'where it widens the rest' if widened else 'here'}"
            return Fix(
                "cast",
                widened or site,
                (edit,) if edit else (),
                True,
                why,
                (f"compute in {wanted} at {short(here)}, where range and precision allow",),
            )
    if kept_wide(recording, culprit, wanted):
        why = f"{culprit.dtype} is on purpose at {short(here)}, where it is updated: cast it to {wanted} where it becomes {culprit.shown}"
        lent, edit = editing.at_lent(recording, site, wanted) or (here, None)
        return Fix("cast", lent, (edit,) if edit else (), edit is not None, why, others)
    narrow = passed and origin.kind == "cast" and culprit.dtype in HALF and wider(wanted, culprit.dtype)
    if (
        narrow
        and not written
        and culprit.holder is None
        and graph.frozen_island(recording, chosen.producer, culprit.dtype)
    ):
        edit = editing.at_call(
            recording,
            site,
            refused.op,
            refused.module,
            chosen.argument,
            chosen.index,
            wanted,
            (chosen.passed, chosen.position),
        )
        if edit is not None:
            why = f"{culprit.shown} comes from weights that are kept in {culprit.dtype} and not trained: cast it to {wanted} here"
            return Fix("cast", site, (edit,), True, why, (f"compute in {wanted} from {short(here)} on",))
    ready = graph.table(recording, origin.place, culprit.dtype) if narrower(wanted, culprit.dtype) else graph.NOWHERE
    if ready.stack and (edit := editing.at_widening(recording, ready, wanted)) is not None:
        why = f"keep computing it in {culprit.dtype}, and cast it to {wanted} here, before it meets the rest"
        return Fix(
            "cast",
            ready,
            (edit,),
            True,
            why,
            (f"compute in {wanted} from {short(here)} on, where range and precision allow",),
        )
    edit = (
        editing.at_load(recording, here, wanted)
        if origin.kind == "load" and editing.loads_state(here)
        else editing.at_birth(recording, origin.kind, here, wanted)
    )
    return Fix("dtype", here, (edit,) if edit else (), True, _words(origin.kind, wanted, origin.op), others)


def kept_wide(recording: Recording, culprit: Operand, wanted: str) -> bool:
    """Whether a weight is wide on purpose where it was made: it is an average or a sum, changed little by little there."""
    origin = culprit.origin
    wide = origin.kind == "cast" and origin.explicit and narrower(wanted, culprit.dtype)
    return (
        wide
        and culprit.holder == "parameter"
        and graph.computes(recording, origin, culprit.dtype)
        and graph.updated(recording, origin, culprit.dtype)
    )


def _words(kind: str, wanted: str, op: str | None = None) -> str:
    """What to change at a birth of this kind."""
    return {
        "factory": f"give it dtype={_spell(wanted)} where it is made"
        if op is None or op in TAKES_DTYPE
        else f"cast it to {wanted} where it is made",
        "conversion": f"make it {wanted} where it is converted",
        "promotion": f"cast the result to {wanted} where it is computed",
        "parameter": f"create the module in {wanted}, or cast it with .to({_spell(wanted)}) after it is made",
        "load": f"load it as {wanted}, or cast it after loading",
        "cast": f"cast to {wanted} here, or leave the cast out",
        "autocast": f"cast the result to {wanted} where it leaves the autocast region",
        "reinterpret": f"view it as {wanted}",
        "worker": f"make it {wanted} in the dataset or collate function",
        "input": f"make it {wanted} before it is passed in",
    }.get(kind, f"make it {wanted}")


def _at_site(refused: Refused, culprit: Operand, chosen: Witness, wanted: str | None, site: Place) -> str:
    """The second best remedy, in the call itself, with what speaks against it; empty where a cast there is none."""
    if refused.code == "DT107" and chosen.argument == "self" and (refused.op == "setitem" or refused.op.endswith("_")):
        return (
            f"cast what is written to {culprit.dtype} at the call, {short(site)}, where it is to stay {culprit.dtype}"
        )
    if refused.code == "DT117" and is_destination(refused.op, chosen.argument, chosen.index):
        return ""
    if culprit.holder not in ("parameter", "buffer") or not refused.module:
        return f"cast {culprit.shown} at the call, {short(site)}, which mends this use alone"
    if culprit.origin.kind in ("parameter", "load"):
        return ""
    whole = all(p.dtype == culprit.dtype for p in refused.model)  # then one layer of it would not do
    scope = refused.module.partition(".")[0] if whole else refused.module
    return f"cast all of {scope} to {wanted} instead, once it is put together, so that nothing in it disagrees"


def _from_library(
    recording: Recording,
    culprit: Operand,
    chosen: Witness,
    flow: tuple[FlowStep, ...],
    wanted: str,
    others: tuple[str, ...],
) -> Fix:
    """A library is not the user's to edit: its value is cast where the user's own line gets it."""
    origin = culprit.origin
    own = editing.from_user(origin.place)
    called = expressions.called(origin.place)
    if origin.kind == "cast" and (edit := editing.at_birth(recording, "cast", own, wanted)) is not None:
        return Fix(
            "dtype", own, (edit,), True, _words("cast", wanted), others
        )  # the library only handed the program's cast on
    if origin.op == "from_pretrained":
        edit, why = (
            editing.dtype_keyword(recording, own, wanted),
            f"load it as {wanted}, which {called}() can be told, or cast it after loading",
        )
    else:
        a_class = called.rpartition(".")[2][:1].isupper()  # it gives the module, or an object that holds the tensor
        edit = editing.at_birth(recording, "parameter", own, wanted) if a_class and origin.kind == "parameter" else None
        if origin.kind != "parameter":
            out = graph.handed_out(recording, origin.place, culprit.dtype, chosen.producer)
            # what is a tensor where it is used is one where its name is assigned
            used = next(
                (
                    s.place.stack[0]
                    for s in flow[1:-1]
                    if s.how == "promotion" and s.place.stack and s.place.stack[0].user
                ),
                None,
            )
            names = expressions.taken(used) if used else [culprit.written] * culprit.handed
            out = own if not out.stack and own.stack and any(editing.assigns(own, name) for name in names) else out
            edit = editing.at_widening(recording, out, wanted) if out.stack else None
            own = out if edit else own
        given = f"is taken from {called}()" if a_class and origin.kind != "parameter" else f"{called}() gives"
        why = (
            f"have {called}() make it {wanted}, by what it is given here"
            if not edit and editing.dropped(own)
            else f"cast what {given} to {wanted} here"
        )
    return Fix("dtype", own, (edit,) if edit else (), edit is not None, why, others)


def _under_autocast(recording: Recording, refused: Refused) -> str:
    """Where weights that an optimizer trains meet half precision: autocast computes in half and leaves the weights in
    float32. A half weight is as fine as 2**-8 or 2**-11 of itself, and an update smaller than half of that is lost."""
    weight = next((w for w in refused.witnesses if w.trained), None)
    half = {w.dtype for w in refused.witnesses if w.dtype in HALF}
    if weight is None or refused.autocast or refused.phase != "forward" or refused.wants != "agree":
        return ""
    if len(half) != 1 or {w.dtype for w in refused.witnesses if w.dtype in FLOATING} - half != {"float32"}:
        return ""
    if weight.dtype not in half and any(p.trained and p.dtype in half for p in refused.model):
        return ""  # a float32 weight among those that are trained in half is no plan
    own = [
        i
        for o in recording.ops
        if (o.op, o.module, o.autocast) == (refused.op, refused.module, "")
        for i in o.inputs
        if i.holder == "parameter"
    ]
    if weight.dtype not in half and any(i.dtype in half for i in own):
        return ""  # nor is one that has been half here before
    region = f'torch.autocast("{weight.device.partition(":")[0]}", dtype={_spell(*half)})'
    if weight.dtype in half:
        return f"keep the weights that are trained in float32 and run the forward under {region}: {weight.dtype} loses small updates"
    before = next((o for o in recording.ops if o.autocast and (o.op, o.module) == (refused.op, refused.module)), None)
    body = graph.in_region(graph.place_of(recording, before.place)) if before is not None else None
    return f"run this under {region}, {f'as {short(body)} does' if body else 'which leaves the weights that are trained in float32'}"


def _kernel(refused: Refused, culprit: Operand, in_line: str | None) -> tuple[str, str]:
    """What to do where an operation has no kernel for a dtype, and the dtype to cast to at the call, if that is all.

    Half precision is computed in float32 and comes back; what is no floating point, or is too much of it, does not.
    """
    found, op = culprit.dtype, refused.op
    if found.startswith("complex"):
        return f"{op} takes real numbers: pass it .real, .imag or .abs() of {culprit.shown}", ""
    if found in FLOATING and found not in HALF and not found.startswith("float8"):
        return f"{op} takes integers or booleans: cast {culprit.shown} to int64 or bool at the call", ""
    if found in FLOATING:
        return f"compute {op} in float32 and cast its result back", ""
    number = in_line if in_line in FLOATING else "int64" if found == "bool" or found in STORAGE_ONLY else "float32"
    invert = ", or turn a mask round with ~" if found == "bool" and op in ("sub", "rsub", "neg") else ""
    return f"cast {culprit.shown} to {number} at the call{invert}", number


def wanted_dtype(refused: Refused, culprit: Operand, in_line: str | None) -> str | None:
    """The dtype that the culprit is to have; None where the run shows none."""
    if refused.wants == "complex":
        return COUNTERPART.get(culprit.dtype, "complex64")
    if refused.code == "DT111":  # a destination is to be what is written into it
        told = dict(refused.dtypes)
        return next(
            (told[k] for k in ("result", "expected", "desired") if told.get(k, culprit.dtype) != culprit.dtype), in_line
        )
    return {"integer": "int64", "bool": "bool", "float": in_line if in_line in FLOATING else "float32"}.get(
        refused.wants
    ) or in_line


def born_as(flow: tuple[FlowStep, ...], wanted: str | None) -> str | None:
    """The dtype that a value has to be born in to be ``wanted`` where it is used: real numbers of that precision, where they
    became complex on the way."""
    return COUNTERPART.get(wanted, wanted) if flow and wanted in COMPLEX and flow[0].to not in COMPLEX else wanted


def _decided(recording: Recording, step: int) -> Place:
    return graph.place_of(recording, recording.steps[step].place) if step >= 0 else graph.NOWHERE


def _same_line(born: Place, site: Place) -> bool:
    return (born.file, born.line) == (site.file, site.line)


def _at_use(
    recording: Recording, refused: Refused, culprit: Operand, chosen: Witness, wanted: str | None, site: Place
) -> Fix | None:
    """The cast where a value is used, for one that is right to be what it is where it was made."""
    origin, shown = culprit.origin, culprit.shown
    if refused.pattern == "grad.requires_grad_int":
        if not origin.explicit:
            return None
        return Fix(
            "plan",
            site,
            (),
            True,
            f"{culprit.dtype} cannot be trained: keep {shown} out of training with requires_grad=False",
        )
    if refused.code == "DT120" and refused.wants == "kernel":
        why = f"cast {shown} to float32 before it leaves torch"
    elif wanted is None or wanted == culprit.dtype:
        return None
    elif refused.op in ("grad", "data") and refused.aten is None:
        why = f"cast {shown} to {wanted} as it is assigned"
    elif (
        refused.wants == "float"  # class numbers and pixels: elsewhere they are integers on purpose
        or culprit.dtype == "bool"
        and wanted in FLOATING
        or culprit.dtype in STORAGE_ONLY
        or origin.kind == "parameter"
        and wanted not in FLOATING  # no module can be cast to it
        or refused.wants in ("integer", "bool")
        and not graph.keeps(recording, chosen.producer, chosen.step, wanted)
    ):
        why = f"cast {shown} to {wanted} at the call"
    else:
        return None
    to = "float32" if refused.code == "DT120" else wanted
    edit = editing.at_call(
        recording, site, refused.op, refused.module, chosen.argument, chosen.index, to, (chosen.passed, chosen.position)
    )
    return Fix(
        "cast",
        site,
        (edit,) if edit else (),
        True,
        why,
        (f"keep {culprit.dtype} from being chosen at {short(origin.place)}",),
    )


def _limit(refused: Refused, number: Operand, site: Place) -> str:
    """The lowest or highest number of the dtype that refused one, as the program would write it."""
    tensors = (w for w in refused.witnesses if not w.dtype.startswith("python"))
    frame, dtype = site.stack[0] if site.stack else None, dict(refused.dtypes).get("type", "")
    names = (
        w.name or frame and expressions.argument(frame, refused.op, refused.module, w.argument, w.index)
        for w in tensors
    )
    name = next((f"{name}.dtype" for name in names if name), _spell(dtype) if dtype else "x.dtype")
    return f"torch.{'iinfo' if 'int' in dtype else 'finfo'}({name}).{'min' if number.name.startswith('-') else 'max'}"


def _spell(dtype: str) -> str:
    return f"torch.{dtype}"


def short(place: Place) -> str:
    """The user's line and, where another's code is below it, that one's name."""
    frame = place.user_frame
    return f"{os.path.basename(frame.file)}:{frame.line}" if frame else ""
