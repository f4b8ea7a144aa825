"""What to change: the remedy of a finding in words, and as a source edit where the text tells it.

The principle: at the birth where the dtype was an oversight, where it is used otherwise. What must
stay wide is not narrowed where it is computed; its result is brought back.
"""

from __future__ import annotations

from . import _edits, _source, graph
from ._judgement import BYTES, OTHER_FORM, STORED
from .records import FLOATING, Fix, FlowStep, Operand, Place, Recording, Refused, Witness


def remedy(
    recording: Recording, refused: Refused, culprit: Operand | None, chosen: Witness | None, flow: tuple[FlowStep, ...], in_line: str | None, site: Place
) -> Fix | None:
    """What to change: in words, and as an edit where the text tells it."""
    if culprit is None or chosen is None:
        return None
    origin = culprit.origin
    here = origin.place if origin.place.stack else site
    wanted = wanted_dtype(refused, culprit, in_line)
    # a gradient, an optimizer's state and a destination are nothing that a cast in the call would help
    passed = refused.phase not in ("backward", "optimizer") and refused.code != "DT111" and site.stack and site.stack[0] is site.user_frame
    at_site = f"cast {culprit.shown} at the call, {short(site)}" if passed else ""
    if refused.code == "DT116":
        return Fix("plan", here, (), True, "keep the trainable weights in float32 and let autocast compute in half")
    if passed and (at_use := _at_use(recording, refused, culprit, chosen, wanted, site)) is not None:
        return at_use
    if refused.wants == "fits":
        edit = _edits.scalar(recording, site, culprit.name)
        limit = edit.after if edit else _limit(refused, culprit, site)
        return Fix("scalar", site, (edit,) if edit else (), True, f"use a value that the dtype can hold, such as {limit}")
    if refused.wants == "kernel":
        return Fix("cast", site, (), True, f"compute {refused.op} in float32 and cast its result back", (f"keep {culprit.dtype} from being chosen at {short(here)}",))
    if wanted is None or wanted == culprit.dtype:
        return Fix("dtype", here, (), False, f"{refused.op} does not take {culprit.dtype}: make it another dtype here", (at_site,) if at_site else ())
    if origin.kind != "worker" and origin.place.stack and not origin.place.stack[0].user and origin.place.user_frame is not origin.place.stack[0]:
        # a library is not the user's to edit: its value is cast where the user's own line gets it
        why = f"cast what this line gets from {origin.function} to {wanted}"
        return Fix("dtype", Place(_from_user(origin.place)), (), False, why, (at_site,) if at_site else ())
    kinds = {
        "factory": f"give it dtype={_spell(wanted)} where it is made",
        "conversion": f"make it {wanted} where it is converted",
        "promotion": f"cast the result to {wanted} where it is computed",
        "parameter": f"create the module in {wanted}, or cast it with .to({_spell(wanted)}) after it is made",
        "load": f"load it as {wanted}, or cast it after loading",
        "cast": f"cast to {wanted} here, or leave the cast out",
        "autocast": f"cast the result to {wanted} where it leaves the autocast region",
        "reinterpret": f"view it as {wanted}",
        "worker": f"make it {wanted} in the dataset or collate function",
        "input": f"make it {wanted} before it is passed in",
    }
    island = origin.kind == "cast" and origin.explicit and BYTES.get(wanted, 8) < BYTES.get(culprit.dtype, 0)
    if island and culprit.holder is None and not _same_line(origin.place, site):
        # what computes wide on purpose stays wide: its result comes back where it widened the stream, else where it is refused
        widened = next((s.place for s in reversed(flow) if s.how == "promotion" and s.place.stack and s.place.stack[0].user), None)
        edit = _edits.at_widening(recording, widened, wanted) if widened else _edits.at_call(recording, site, refused.op, refused.module, chosen.argument, chosen.index, wanted)
        if edit is not None:
            why = f"{culprit.dtype} is on purpose at {short(here)}: bring the result back to {wanted} {'where it widens the rest' if widened else 'here'}"
            return Fix("cast", widened or site, (edit,), True, why, (f"compute in {wanted} at {short(here)}, where range and precision allow",))
    ready = graph.table(recording, origin.place, culprit.dtype) if BYTES.get(wanted, 8) < BYTES.get(culprit.dtype, 0) else graph.NOWHERE
    if ready.stack and (edit := _edits.at_widening(recording, ready, wanted)) is not None:
        why = f"keep computing it in {culprit.dtype}, and cast it to {wanted} here, before it meets the rest"
        return Fix("cast", ready, (edit,), True, why, (f"compute in {wanted} from {short(here)} on, where range and precision allow",))
    edit = _edits.at_birth(recording, origin.kind, here, wanted) if origin.op != "set_default_dtype" else None
    why = kinds.get(origin.kind, f"make it {wanted}")
    return Fix("dtype", here, (edit,) if edit else (), True, why, (at_site,) if at_site else ())


def wanted_dtype(refused: Refused, culprit: Operand, in_line: str | None) -> str | None:
    """The dtype that the culprit is to have; None where the run shows none."""
    if refused.wants == "complex":
        return OTHER_FORM.get(culprit.dtype, "complex64")
    if refused.code == "DT111":  # a destination is to be what is written into it
        told = dict(refused.dtypes)
        return next((told[k] for k in ("result", "expected", "desired") if told.get(k, culprit.dtype) != culprit.dtype), in_line)
    return {"integer": "int64", "bool": "bool", "float": in_line if in_line in FLOATING else "float32"}.get(refused.wants) or in_line


def _same_line(born: Place, site: Place) -> bool:
    return (born.file, born.line) == (site.file, site.line)


def _from_user(place: Place):
    """The stack from the user's innermost frame on."""
    user = place.user_frame
    return place.stack[place.stack.index(user) :] if user in place.stack else place.stack


def _at_use(recording: Recording, refused: Refused, culprit: Operand, chosen: Witness, wanted: str | None, site: Place) -> Fix | None:
    """The cast where a value is used, for one that is right to be what it is where it was made."""
    origin, shown = culprit.origin, culprit.shown
    if refused.pattern == "grad.requires_grad_int":
        if not origin.explicit:
            return None
        return Fix("plan", site, (), True, f"{culprit.dtype} cannot be trained: keep {shown} out of training with requires_grad=False")
    if refused.code == "DT120" and refused.wants == "kernel":
        why = f"cast {shown} to float32 before it leaves torch"
    elif wanted is None or wanted == culprit.dtype:
        return None
    elif refused.op in ("grad", "data") and refused.aten is None:
        why = f"cast {shown} to {wanted} as it is assigned"
    elif (
        refused.wants == "float"  # class numbers and pixels: elsewhere they are integers on purpose
        or culprit.dtype in STORED
        or origin.kind == "parameter" and wanted not in FLOATING  # no module can be cast to it
    ):
        why = f"cast {shown} to {wanted} at the call"
    else:
        return None
    to = "float32" if refused.code == "DT120" else wanted
    edit = _edits.at_call(recording, site, refused.op, refused.module, chosen.argument, chosen.index, to)
    return Fix("cast", site, (edit,) if edit else (), True, why, (f"keep {culprit.dtype} from being chosen at {short(origin.place)}",))


def _limit(refused: Refused, number: Operand, site: Place) -> str:
    """The lowest or highest number of the dtype that refused one, as the program would write it."""
    tensors = (w for w in refused.witnesses if not w.dtype.startswith("python"))
    frame, dtype = site.stack[0] if site.stack else None, dict(refused.dtypes).get("type", "")
    names = (w.name or frame and _source.argument(frame, refused.op, refused.module, w.argument, w.index) for w in tensors)
    name = next((f"{name}.dtype" for name in names if name), _spell(dtype) if dtype else "x.dtype")
    return f"torch.{'iinfo' if 'int' in dtype else 'finfo'}({name}).{'min' if number.name.startswith('-') else 'max'}"


def _spell(dtype: str) -> str:
    return f"torch.{dtype}"


def short(place: Place) -> str:
    """The user's line and, where another's code is below it, that one's name."""
    frame = place.user_frame
    return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line}" if frame else ""
