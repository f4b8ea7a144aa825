"""The words for a finding that all views share: labels of lines, places, and how the other operands are described."""

from __future__ import annotations

import os

from ..records import NOT_FINITE, UNWATCHED, Finding, Fix, FlowStep, Frame, Operand, Origin, Place, Tried
from ..tables.english import called, quoted, rival, share, subject
from ..tables.operators import tagged


def tried(f: Finding) -> tuple[str, ...]:
    """What the trial of a finding's cause showed, as at most one sentence."""
    if f.tried is None:
        return ()
    return (f"not tried: {f.tried.missing}" if f.tried.missing else f"tried: {'; '.join(trial(f.tried, f))}",)


def trial(t: Tried, f: Finding) -> tuple[str, str]:
    """What was measured as the run is, and without the roundings that a finding blames."""
    frame = t.place.user_frame
    where = f" ({at(t.place)})" if frame is not None and t.place.stack[:1] != f.site.stack[:1] else ""
    many = "these numbers" if t.roundings == 1 else f"the numbers of {t.roundings} such places"
    wider = f"with {many} kept in a wider dtype"
    in_which = {"step": "in float32", "spoilt": "in a wider dtype"}.get(t.unit, wider)
    before, after = share(t.before), share(t.after)
    if t.unit in _ERRORS:
        before, after = _off(t.before), _off(t.after)
        after = after.removeprefix("off ") if before.startswith("off") else after  # "off by 3%; in float32, by 0.1%"
    return _TRIED[t.unit].format(result=f"{quoted(t.what)}{where}", before=before), f"{in_which}, {after}"


_TRIED = {
    "error": "the result of {result} is {before}",
    "change": "what {result} changes is {before}",
    "step": "what a step changes is {before}",
    "choices": "{before} of what {result} chooses would be others in higher precision",
    "merged": "{before} of the neighbours in the result of {result} are equal and should not be",
    "spoilt": "{before} of the numbers that {result} makes are spoilt",
    "still": "{before} of the numbers that {result} should change do not change",
}
"""What a trial showed, by its unit."""
_ERRORS = ("error", "change", "step")


def _off(error: float) -> str:
    """A relative error; of what is not finite, there is none."""
    if error >= NOT_FINITE:
        return "infinite or NaN"
    by = f"{error:,.0f} times" if error >= 10 else "less than 0.01%" if 0 < error < 5e-5 else f"{error:.2%}"
    return f"off by {by}"


def labels(f: Finding) -> list[tuple[Frame, str]]:
    """The user's lines to show, in the order of the flow, each with its label; the first is the birth's."""
    found: list[tuple[Frame, str]] = []
    last = len(f.flow) - 1
    for index, step in enumerate(f.flow):
        frame, text = step.place.user_frame, label(f, step, index, last)
        if frame is None or (frame, text) in found:
            continue
        says_then = f.kind == "round-trip" and index == last
        again = found[-1:] and found[-1][0] == frame and not says_then  # not one sentence with the label above
        found.append((frame, f"then {text}" if again else text))
    if not f.flow and f.site.user_frame is not None:
        found.append((f.site.user_frame, f"{quoted(f.op)} is refused"))
    return found


def label(f: Finding, step: FlowStep, index: int, last: int) -> str:
    """The text for one step of the flow; ``last`` is the number of the last step."""
    if step.said:
        return step.said
    if index == last:
        return _meeting(f) if f.kind == "collision" else _change(f, step)
    if index == 0:
        if f.culprit is not None and f.culprit.dtype.startswith("python"):
            return f"{f.culprit.name} is written here"
        if f.culprit is not None and f.culprit.origin.kind == "input":
            name = f" as {quoted(f.culprit.origin.name)}" if f.culprit.origin.name else ""
            return f"{step.to} comes in here{name}: {_unseen_birth(f.culprit)}, or where dtypetrace cannot look"
        if step.op == "autocast":
            return f"autocast is set to {step.to} here"
        inside_call = f", in {step.called}()" if step.called else ""
        return f"{step.to} is born here{inside_call}: {_birth(f, step)}"
    if f.flow[0].op == "set_default_dtype" and index == 1:
        return f"{quoted(step.op)} takes the default dtype{inside(step.place)}"
    if step.how == "promotion":
        return f"{_mixed(step)}{inside(step.place)}"
    if step.how == "attribute":
        return like_attribute(step)
    if step.how == "autocast":
        return f"autocast makes the result {step.to}{inside(step.place)}"
    return f"{step.source} becomes {step.to}{inside(step.place)}"


def like_attribute(step: FlowStep) -> str:
    """A cast to the dtype that an attribute names. Inside a library, that is an attribute of the library's."""
    where = f"in this call{inside(step.place, function=False)}" if inside(step.place) else "here"
    return f"{casts_like(step)}, which is {step.to} {where}"


def casts_like(step: FlowStep) -> str:
    """What casts a tensor to the dtype of an attribute."""
    cast, via = quoted(step.receiver) if step.receiver else "a tensor", step.via or "an attribute"
    if inside(step.place):
        return f"{step.place.function}() casts {cast} to {via}"
    if tagged(step.op, "takes_dtype"):
        return f"{step.op}() takes the dtype of {via}"
    return f"{step.op}() casts {cast} to {via}" + (f", the dtype of {quoted(step.read)}" if step.read else "")


def _mixed(step: FlowStep) -> str:
    """What an operator makes of several dtypes."""
    meet = f"{' and '.join(step.source.split(' + '))} meet" if " + " in step.source else step.source
    return f"{meet}: the result is {step.to}"


def _change(f: Finding, step: FlowStep) -> str:
    """The text for the step where a silent change is seen."""
    where = inside(step.place)
    if step.how == "promotion":
        return f"{_mixed(step)}{where}"
    if step.how == "copy":
        return f"{quoted(step.op)} stores {step.source} values as {step.to}{where}"
    if f.kind == "round-trip":
        return (
            f"then cast back to {step.to}{where}: nothing in between needed {step.source}"
            if step.source != step.to
            else f"cast again at each call{where}"
        )
    return f"{quoted(step.op)} runs in {step.to}{where}"


def fix_at(fix: Fix) -> str:
    """The place to show beside the words of a fix: one of the user's own, and only where neither the words nor the
    changes name a line themselves; else empty."""
    user = fix.place.user_frame
    if not fix.place.stack or fix.lines:
        return ""
    if not fix.edits:
        return "" if fix.named.stack or not fix.place.stack[0].user else at(fix.place)
    lines_up = user is None or any(e.file == user.file and e.start[0] <= user.line <= e.end[0] for e in fix.edits)
    return at(fix.place) if lines_up else ""


def decided_by(origin: Origin) -> str:
    """What decided a dtype, in a few words: ``cast by to()``."""
    if origin.kind == "autocast" and origin.op:
        return f"{origin.op}() under autocast"
    by = f" by {origin.op}()" if origin.op else ""
    return f"{origin.kind}{by}{'' if origin.explicit or origin.kind != 'factory' else ', without a dtype'}"


def instruction(fix: Fix) -> str:
    """What to change, with the place."""
    at = fix_at(fix)
    return f"{fix.instruction} ({at})" if at else fix.instruction


def help_for(fix: Fix) -> str:
    """What to change, with the place, and the reason for it."""
    return instruction(fix) + fix.reason


def inside(place: Place, *, function: bool = True) -> str:
    """The library's line, where the line that is shown is the user's own further out."""
    frame = place.stack[0] if place.stack else None
    if frame is None or frame == place.user_frame:
        return ""
    return f" (in {relative(frame.file)}:{frame.line}{f', {frame.function}' if function else ''})"


def _birth(f: Finding, step: FlowStep) -> str:
    kind = f.culprit.origin.kind if f.culprit else ""
    outside = inside(step.place, function=step.place.function != step.called)  # the sentence may have named it
    named = f.culprit is not None and f.culprit.origin.explicit
    born = {
        "factory": f"{step.op}() got dtype={step.to}"
        if named
        else f"{step.op}() without a dtype"
        if tagged(step.op, "takes_dtype")
        else f"{step.op}() returns {step.to}",
        "conversion": f"{step.op}() got dtype={step.to}" if named else _converted(step),
        "promotion": f"{step.op}() of {step.source} returns {step.to}"
        if step.source != step.to
        else f"{step.op}() returns {step.to}",
        "parameter": f"the module's constructor makes {step.to} parameters",
        "load": f"the checkpoint holds {step.to}"
        if step.op != "from_pretrained"
        else f"the call names {step.to}"
        if named
        else f"it is loaded as {step.to}",
        "cast": f"a {step.to} tensor is assigned to .data, which was {step.source}"
        if step.op == "data"
        else f"cast from {step.source}"
        if step.source != step.to
        else f"a cast to {step.to}",
        "autocast": f"{quoted(step.op)} runs under autocast",
        "worker": "it comes from a DataLoader worker",
        "reinterpret": f"its bits are viewed as {step.to}",
    }
    if step.op == "set_default_dtype":
        return "it becomes the default dtype" + outside
    return born.get(kind, step.op) + outside


def _converted(step: FlowStep) -> str:
    """Python floats have no dtype that could be kept: what is float32 may also be the default."""
    if step.to == "float32" and tagged(step.op, "takes_dtype"):
        return f"{step.op}() without a dtype"
    return f"{step.op}() keeps its argument's dtype"


def _meeting(f: Finding) -> str:
    culprit = f.culprit
    if culprit is None:
        return f"{quoted(f.op)} is refused"
    other = rival(f) if f.code not in _ALONE else None
    mine = _operand(f, culprit)
    if other is None:
        if f.code == "DT111":
            return f"{quoted(f.op)} cannot store its result in {mine}"
        gradient = f.code == "DT116" and culprit.holder == "parameter"
        return f"{quoted(f.op)} refuses {_gradient_of(culprit) if gradient else mine}"
    if f.phase == "backward" and culprit.name == f"{other.name}.grad":
        return f"{mine} must have the dtype of its weight, which is {other.dtype}"
    where = f.op if f.phase == "backward" else _ASSIGNED.get(f.op, quoted(f.op))
    return f"{mine} meets {_operand(f, other)} in {where}"


def _operand(f: Finding, operand: Operand) -> str:
    name, owner = called(operand, f.op, f.phase, f.site)
    return f"{operand.dtype} {name}{_shape(operand.shape)}{owner}"


_ASSIGNED = {"grad": "an assignment to .grad", "data": "an assignment to .data", "setitem": "an indexed write"}
"""Ops that are not calls."""


_ALONE = frozenset({"DT108", "DT109"})
"""Codes that are about one operand alone, not about a disagreement with others."""


UNSEEN_BIRTH = "created in a step that was not watched, or before tracing started"


def _unseen_birth(operand: Operand) -> str:
    return f"it was {UNSEEN_BIRTH if operand.origin.op == UNWATCHED else 'created before tracing started'}"


def operand_notes(f: Finding) -> list[str]:
    """Where the other operand comes from: neither side is the expected one until the run shows it."""
    other = rival(f)
    if other is None or not other.origin.place.stack or f.code in _ALONE:
        return []
    name = subject(other, f.op, f.phase, f.site)
    if other.origin.kind == "input":
        if other.origin.op == UNWATCHED:
            return [f"{name} is {other.dtype}: {_unseen_birth(other)}"]
        if other.holder is not None:
            return [f"{name} was {other.dtype} before tracing started"]
        return [f"{name} is {other.dtype}: it, or a tensor from which it was computed, existed before tracing started"]
    # the derivative of a cast has that one's place, and the operator's own name, as in ``_to_copy``
    if f.phase == "backward" and other.origin.kind == "cast" and (other.origin.op or "").startswith("_"):
        return [f"{name} is {other.dtype} because backward() of {event(other.origin)} makes {other.dtype} gradients"]
    return [f"{name} is {other.dtype} because of {event(other.origin)}"]


_EVENTS = {
    "factory": "the tensor made at",
    "cast": "the cast at",
    "conversion": "the conversion at",
    "parameter": "the module made at",
    "load": "the load at",
    "worker": "the DataLoader worker at",
    "autocast": "autocast at",
    "reinterpret": "the view as another dtype at",
    "computed": "the other model that it is computed with at",
    "trained": "the trained weights that it is computed with at",
    "promotion": "the promotion at",
}


def event(origin: Origin) -> str:
    """An origin as a noun with its place: ``the cast at train.py:9:5``."""
    return f"{_EVENTS.get(origin.kind, origin.kind)} {at(origin.place)}"


def _gradient_of(parameter: Operand) -> str:
    return f"the {parameter.dtype} gradient of {quoted(parameter.shown)}{_shape(parameter.shape)}"


_COUNTED = ("DT205", "DT305")
"""Codes whose count is one of several weights, which the title or a note states."""


def times(f: Finding) -> str:
    """How often a finding occurred, in brackets; empty where the title has the count: an optimizer's steps, a plan's
    weights."""
    counted = f.op == "step" or f.kind == "plan" or f.code in _COUNTED
    counted = counted or f.kind == "promotion" and f.reach is not None and f.reach.ops > 1
    return f" ({f.count:,} times)" if f.count > 1 and not counted else ""


def _shape(shape: tuple[int, ...]) -> str:
    return f" [{', '.join(map(str, shape))}]" if shape else ""


def module(name: str) -> str:
    """A module's name; one without a dot would read as a word of the sentence or as a number, so it is called one."""
    return f"module {name}" if name and "." not in name else name


def at(place: Place) -> str:
    """``file:line:column`` of a place; where that is a library's, the user's line first."""
    frame = place.stack[0] if place.stack else None
    if frame is None:
        return ""
    user = place.user_frame
    own = f"{relative(frame.file)}:{frame.line}" + (f":{frame.column}" if frame.column else "")
    if user is not None and user is not frame:
        return f"{relative(user.file)}:{user.line}, in {own}"
    return own


_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def relative(file: str) -> str:
    """A file as people write it: relative to the working directory, or to the folder of installed packages."""
    if file.startswith("<") or not file:
        return file
    for folder in ("site-packages", "dist-packages"):
        before, found, rest = file.partition(os.sep + folder + os.sep)
        if found:
            return rest
    if file.startswith(_STANDARD_LIBRARY):
        return file.removeprefix(_STANDARD_LIBRARY)
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        return file
    return file if relative.startswith(".." + os.sep + "..") else relative
