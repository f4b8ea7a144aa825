"""What is wrong with that: from refusals to findings, and the judgement of who is out of line.

The judgement weighs what the run shows, in this order:

1. Under autocast the call's compute dtype is autocast's; and where this very op has run before, the
   dtype that it ran in then is in line.
2. A model agrees with itself: the dtype of most of its parameters, less those in dispute, is in line.
3. Where no model was running, or nothing else of it is left, the parameters of the whole run decide.
4. A default yields to a plan: where everything that speaks for float32 merely fell out of the
   default, while the run decided on a half dtype in more than one place, the half dtype is in line.
   One lone cast is no plan.
5. Else what was chosen on purpose is in line and what fell out of a default is not; then the
   majority; then the narrower dtype, as a stray wide tensor is the commonest mistake.

Swap the two sides of a collision and every one of these swaps with them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Iterable

from . import _edits, _source, graph, refusals
from .records import FLOATING, Finding, Fix, FlowStep, Operand, Origin, Place, Raised, Recording, Refused, Step, Witness

HALF = frozenset({"float16", "bfloat16"})
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8, "complex32": 4}
STORED = frozenset(
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 uint16 uint32 uint64".split()
)
_ACCIDENTS = frozenset({"factory", "parameter", "conversion", "load", "worker", "promotion"})
_SEVERITY = {"error": 0, "warning": 1, "note": 2}


def find(recording: Recording, ignore: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """All findings of a recording: the one that ended the run first, then by severity and count."""
    found = _grouped(judge(recording, refused) for refused in recording.refused if refused.left or not _asked_only(refused))
    found = [f for f in found if f.code not in ignore and not _silenced(recording, f)]
    return tuple(sorted(found, key=lambda f: (f.exception is None or f.severity != "error", _SEVERITY[f.severity], -f.count)))


def _asked_only(refused: Refused) -> bool:
    """Whether torch merely asked a tensor if it can be an index: it takes no for an answer and looks at other overloads."""
    return refused.op == "index" and refused.aten is None and refused.exception == "TypeError"


def _silenced(recording: Recording, finding: Finding) -> bool:
    """Whether a line of the finding says ``# dtypetrace: ignore[DT101]``: where it was born or where it hurts."""
    places = (finding.site, finding.culprit.origin.place if finding.culprit else graph.NOWHERE)
    frames = {frame for place in places for frame in (*place.stack[:1], place.user_frame) if frame is not None}
    return any(
        finding.code in codes.replace(" ", "").split(",")
        for frame in frames
        for codes in _IGNORE.findall(recording.line(frame.file, frame.line))
    )


_IGNORE = re.compile(r"#\s*dtypetrace:\s*ignore\[([^\]]*)\]")


def _grouped(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per cause: the same refusal with the same culprit and origin, counted."""
    from dataclasses import replace

    kept: dict[tuple, Finding] = {}
    for f in findings:
        culprit = f.culprit
        key = (f.code, f.kind, f.site.stack, f.phase, culprit and (culprit.origin.kind, culprit.origin.place.stack[:1], culprit.name))
        if key in kept:
            worst = min(kept[key].severity, f.severity, key=_SEVERITY.__getitem__)
            kept[key] = replace(kept[key], count=kept[key].count + f.count, severity=worst)
        else:
            kept[key] = f
    return list(kept.values())


# ---------------------------------------------------------------- one refusal


def judge(recording: Recording, refused: Refused) -> Finding:
    """The finding of one refused call: operands, culprit, flow, remedy."""
    in_line, reason = _in_line(recording, refused)
    chosen = _culprit(refused, in_line)
    # what a lineage is judged against: an index that became floating is wrong by its own cast
    measure = in_line if refused.wants in ("agree", "kernel", "other", "fits") else chosen.dtype if chosen and chosen.device else None
    if chosen and (refused.wants == "complex" or chosen.dtype == in_line and chosen.dtype.startswith("complex")):
        measure = _OTHER_FORM.get(chosen.dtype, measure)  # alone and yet refused for being complex, or for being real
    site = graph.place_of(recording, refused.place)
    operands = tuple(_operand(recording, w, measure, site, refused) for w in refused.witnesses)
    culprit = next((o for o, w in zip(operands, refused.witnesses) if w is chosen), None)
    flow = graph.flow(recording, chosen.step, measure) if chosen else ()
    if chosen is not None:
        meets = FlowStep(site, refused.op, refused.module, chosen.dtype, in_line or chosen.dtype, "value")
        if culprit.dtype.startswith("python") and culprit.origin.place.stack[:1] != site.stack[:1]:
            flow = (FlowStep(culprit.origin.place, "", "", chosen.dtype, chosen.dtype, "value"),)
        flow = (*flow, meets)
    if refused.left:
        severity = "error"
    elif refused.count > 1 and 1 < int(recording.meta.get("steps", 0)) <= refused.count:
        severity = "warning"
    else:
        severity = "note"
    # what an optimizer compares are weights, gradients and its own state, whichever function does it
    code = "DT115" if refused.phase == "optimizer" and refused.wants == "agree" else refused.code
    return Finding(
        code=code,
        kind="collision",
        severity=severity,
        title=refusals.TITLES.get(code, "an operation was refused because of a dtype"),
        phase=refused.phase,
        op=refused.op,
        aten=refused.aten,
        module=refused.module,
        count=refused.count,
        predicted=False,
        site=site,
        operands=operands,
        culprit=culprit,
        flow=flow,
        fix=_remedy(recording, refused, culprit, flow, in_line, site),
        exception=Raised(refused.exception, refused.message),
        notes=tuple(_notes(refused, culprit, operands, flow, in_line, reason)),
    )


def _operand(recording: Recording, witness: Witness, in_line: str | None, site: Place, refused: Refused) -> Operand:
    name, written = witness.name or witness.argument, ""
    if not witness.name and site.stack and refused.phase != "backward":
        written = _source.argument(site.stack[0], refused.op, refused.module, witness.argument, witness.index)
    if witness.dtype.startswith("python"):
        place = graph.scalar_place(site, witness.name)
        name = _source.written(place.stack[0], witness.name) or name if place.stack else name
        origin = Origin("conversion", name, None, place)
    elif witness.dtype.startswith("numpy"):
        called, place = graph.converted(site)
        name = called or name
        origin = Origin("conversion", name, None, place)
    else:
        origin = graph.origin(recording, witness.step, in_line, witness.name or None)
    return Operand(witness.index, name, witness.dtype, witness.shape, witness.device, witness.holder, origin, written)


# ---------------------------------------------------------------- who is out of line


def _contenders(refused: Refused) -> list[Witness]:
    """The operands whose dtypes disagree: the floating ones, or all where those agree."""
    floating = [w for w in refused.witnesses if w.dtype in FLOATING]
    if len({w.dtype for w in floating}) > 1:
        return floating
    tensors = [w for w in refused.witnesses if not w.dtype.startswith("python") and w.argument.split("[")[0] not in _POINTERS]
    return tensors if len({w.dtype for w in tensors}) > 1 else floating or tensors


def _in_line(recording: Recording, refused: Refused) -> tuple[str | None, str]:
    """The dtype that the run was meant to have at this op, and the fact that says so."""
    sides = _contenders(refused)
    present = {w.dtype for w in sides}
    computing = present - STORED
    if refused.wants == "agree" and len(computing) == 1 and computing != present:
        return next(iter(computing)), "that is a format to store in, not to compute in"
    changed = {w.dtype for w in sides if w.changed}
    if len(changed) == 1 and len(present) == 2:
        return next(iter(present - changed)), "what was made from it before its dtype was changed did not follow"
    if refused.wants == "agree" and len(present) == 1:  # one side was seen, the text tells the other
        told = {dtype for _, dtype in refused.dtypes}
        if present < told and len(told) == 2:
            return next(iter(told - present)), "that is what the exception says it met"
    if refused.autocast:
        compute = refused.autocast.partition(":")[2]
        if compute in present:
            return compute, f"autocast computes in {compute} here"
    before = _ran_before(recording, refused, sides)
    if before is not None:
        return before, f"the same {refused.op} ran with that {before} operand before; the other has changed since"
    disputed = {w.name for w in sides if w.name}
    # a parameter that gave an operand its dtype is a party, too; not so a cast that all of the model went through
    shared = Counter(p.step for p in refused.model)
    parties = {n for w in sides for n in graph.steps_above(recording, w.step) if shared[n] == 1}
    sizes: Counter[str] = Counter()
    for p in refused.model:
        if p.name not in disputed and p.step not in parties:
            sizes[p.dtype] += p.size
    scope = "the model's"
    if not sizes:
        sizes.update(dict(refused.run))
        for w in sides:
            if w.holder == "parameter":
                sizes[w.dtype] -= _elements(w)
        scope = "the run's"
    sizes = +sizes
    if sizes:
        dominant, size = sizes.most_common(1)[0]
        share = size / sum(sizes.values())
        if share > 0.5:
            planned = _plan(recording, refused, sides, dominant)
            if planned is not None:
                return planned, f"{scope} parameters are {dominant} by default only, while the run decided on {planned}"
            return dominant, f"{scope} other parameters are {dominant} ({share:.0%})"
    if refused.code == "DT112" and len(wide := {d for d in present if not d.startswith("float8")}) == 1:
        return wide.pop(), "float8 is a format to store in and to multiply matrices of"
    if refused.wants == "other":
        written = [w for w in sides if w.argument == refused.argument] or [w for w in sides if ("out", w.dtype) in refused.dtypes]
        rest = [w.dtype for w in sides if w not in written]
        if written and rest:
            return rest[0], f"what meets it is {rest[0]}"
    return _by_purpose(recording, sides)


def _ran_before(recording: Recording, refused: Refused, sides: list[Witness]) -> str | None:
    """The dtype of the operands that this very call had when it ran before, where those of the other dtypes are new.

    Where everything has changed since (a model was cast after a first try), the past says nothing.
    """
    site = graph.place_of(recording, refused.place).stack[:1]
    known: set[tuple[str, int]] = set()
    for op in recording.ops:
        if op.op == refused.op and op.module == refused.module and op.phase in ("forward", "recompute") and not op.autocast:
            operands = [(i.dtype, i.step) for i in op.inputs if i.dtype in FLOATING]
            # a transpose and the like have one operand; they ran as a part of the refused call too
            if len(operands) > 1 and graph.place_of(recording, op.place).stack[:1] == site:
                known.update(operands)
    old = {w.dtype for w in sides if (w.dtype, w.step) in known}
    return old.pop() if len(old) == 1 else None


def _elements(witness: Witness) -> int:
    size = 1
    for n in witness.shape:
        size *= n
    return size


def _plan(recording: Recording, refused: Refused, sides: list[Witness], dominant: str) -> str | None:
    """The half dtype that the run decided on, where all that is against it is a default (principle 4)."""
    rivals = {w.dtype for w in sides} & HALF
    model_is_a_side = any(w.dtype == dominant and w.holder == "parameter" for w in sides)
    if dominant in HALF or len(rivals) != 1 or not model_is_a_side or refused.phase not in ("forward", "recompute"):
        return None
    rival = rivals.pop()
    if any(w.dtype == rival and w.holder == "parameter" for w in sides):
        return None  # a parameter against its own model: the model agrees with itself
    for p in refused.model:
        line = graph.lineage(recording, p.step)
        if p.dtype == rival or line is None or line.root.explicit or line.root.how in ("input", "load"):
            return None
    named = [s for s in recording.steps if s.explicit and s.to == rival and not s.module]
    # `.to(y.dtype)` repeats a decision, it makes none
    repeats = {s.place for s in named if any(graph.linked(recording, s, r) for r in s.reads)}
    decisions = {graph.place_of(recording, s.place).stack[:1] for s in named if s.place not in repeats}
    parameters = dict(refused.run).get(rival, 0)
    return rival if len(decisions) > 1 or parameters else None


def _by_purpose(recording: Recording, sides: list[Witness]) -> tuple[str | None, str]:
    floating = [w.dtype for w in sides if w.dtype in FLOATING]
    if len(set(floating)) == 1 and len(floating) < len(sides):
        return floating[0], "what meets it is floating point"
    # what a module holds is one voice, and a tensor of no dimensions has none
    voices = Counter(dtype for dtype, _ in {(w.dtype, -1 if w.holder in ("parameter", "buffer") else w.index) for w in sides if w.shape})
    if len(voices) == 2 and (most := voices.most_common(2))[0][1] > most[1][1]:
        return most[0][0], f"most operands are {most[0][0]}"
    chosen = {w.dtype for w in sides if _on_purpose(recording, w)}
    fallen = {w.dtype for w in sides} - chosen
    if len(chosen) == 1 and fallen:
        dtype = chosen.pop()
        return dtype, f"{dtype} was chosen on purpose, {' and '.join(sorted(fallen))} fell out of a default"
    counts = Counter(w.dtype for w in sides)
    if not counts:
        return None, ""
    ranked = sorted(counts, key=lambda d: (-counts[d], _BYTES.get(d, 1)))
    if len(ranked) > 1 and counts[ranked[0]] > counts[ranked[1]]:
        return ranked[0], f"most operands are {ranked[0]}"
    return ranked[0], ""


def _on_purpose(recording: Recording, witness: Witness) -> bool:
    line = graph.lineage(recording, witness.step)
    if line is None:
        return False
    root: Step = line.root
    return root.explicit or root.how == "autocast" or root.how not in _ACCIDENTS and root.how != "input"


def _culprit(refused: Refused, in_line: str | None) -> Witness | None:
    """The operand to blame, by what the op wanted."""
    witnesses = refused.witnesses
    if not witnesses:
        return None
    said = [dtype for _, dtype in refused.dtypes]
    if refused.wants == "fits":
        scalars = [w for w in witnesses if w.dtype.startswith("python")]
        return scalars[-1] if scalars else witnesses[-1]
    named = [w for w in witnesses if refused.argument and w.argument.split("[")[0] == refused.argument]
    if refused.wants == "kernel":
        fitting = [w for w in witnesses if w.dtype in said] or [w for w in witnesses if w.dtype in FLOATING]
        return _first(named or fitting or list(witnesses))
    if refused.wants in ("integer", "bool", "float"):
        wrong = [w for w in named or witnesses if not _suits(w.dtype, refused.wants)]
        spoken = [w for w in wrong if w.dtype in said]
        roles = [w for role in _ROLES[refused.wants] for w in spoken or wrong if w.argument.split("[")[0] == role]
        return _first(named or roles or spoken or wrong or list(witnesses))
    sides = _contenders(refused)
    out = [w for w in sides if w.dtype != in_line]
    return _first(out or named or sides)


def _first(witnesses: list[Witness]) -> Witness | None:
    return next((w for w in witnesses if w.holder == "parameter"), witnesses[0] if witnesses else None)


_ROLES = {  # the arguments that are most often meant come first
    "integer": ("index", "indices", "target", "labels", "tensor_indices_or_sections", "input"),
    "bool": ("mask", "condition", "attn_mask"),
    "float": ("target", "input", "self"),
}
_POINTERS = frozenset({"index", "indices", "offsets", "batch_sizes", "mask", "condition"})
"""Arguments that are integers or booleans by right: they have no side where the values disagree."""
_OTHER_FORM = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_OTHER_FORM |= {real: form for form, real in _OTHER_FORM.items()}


def _suits(dtype: str, wants: str) -> bool:
    if wants == "bool":
        return dtype in ("bool", "uint8")
    if wants == "integer":
        return dtype == "int64"
    return dtype in FLOATING


# ---------------------------------------------------------------- words


def _notes(
    refused: Refused, culprit: Operand | None, operands: tuple[Operand, ...], flow: tuple[FlowStep, ...], in_line: str | None, reason: str
) -> Iterable[str]:
    # operands that are out of line as well, by another birth: each has to be mended
    others = {
        (o.shown, o.dtype, o.origin)
        for o in operands
        if culprit is not None and o.dtype in FLOATING and culprit.dtype != in_line and o.dtype != in_line
        and o.origin.place.stack[:1] != culprit.origin.place.stack[:1] and o.origin.place.stack
    }
    if reason and culprit is not None and culprit.dtype != in_line and refused.wants not in ("fits", "integer", "bool", "float"):
        yield f"{culprit.shown} is {culprit.dtype}; {reason}"
    for name, dtype, origin in sorted(others, key=lambda o: o[0]):
        yield f"{name} is {dtype} too, since {_short(origin.place)}"
    for step in flow:
        if step.how == "attribute":
            yield f"{culprit.shown if culprit else 'it'} took its dtype from {step.via or 'an attribute'}, not from a value"
            break
    if refused.autocast:
        yield f"autocast was on: {refused.autocast}"
    if not refused.witnesses and refused.dtypes:
        yield f"no tensor of it was seen; the message names {refusals.in_words(dict(refused.dtypes))}"


def _short(place: Place) -> str:
    """The user's line and, where another's code is below it, that one's name."""
    frame = place.user_frame
    return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line}" if frame else ""


def _remedy(
    recording: Recording, refused: Refused, culprit: Operand | None, flow: tuple[FlowStep, ...], in_line: str | None, site: Place
) -> Fix | None:
    """What to change: in words, and as an edit where the text tells it."""
    if culprit is None:
        return None
    origin = culprit.origin
    here = origin.place if origin.place.stack else site
    wanted = {"integer": "int64", "bool": "bool", "float": in_line if in_line in FLOATING else "float32"}.get(refused.wants) or in_line
    if refused.wants == "complex":
        wanted = _OTHER_FORM.get(culprit.dtype, "complex64")
    if refused.code == "DT111":  # a destination is to be what is written into it
        told = dict(refused.dtypes)
        wanted = next((told[k] for k in ("result", "expected", "desired") if told.get(k, culprit.dtype) != culprit.dtype), wanted)
    # a gradient, an optimizer's state and a destination are nothing that a cast in the call would help
    passed = refused.phase not in ("backward", "optimizer") and refused.code != "DT111" and site.stack and site.stack[0] is site.user_frame
    at_site = f"cast {culprit.shown} at the call, {_short(site)}" if passed else ""
    if refused.code == "DT116":
        return Fix("plan", here, (), True, "keep the trainable weights in float32 and let autocast compute in half")
    if passed and (at_use := _at_use(recording, refused, culprit, wanted, site)) is not None:
        return at_use
    if refused.wants == "fits":
        edit = _edits.scalar(recording, site, culprit.name)
        limit = edit.after if edit else _limit(refused, culprit, site)
        return Fix("scalar", site, (edit,) if edit else (), True, f"use a value that the dtype can hold, such as {limit}")
    if refused.wants == "kernel":
        return Fix("cast", site, (), True, f"compute {refused.op} in float32 and cast its result back", (f"keep {culprit.dtype} from being chosen at {_short(here)}",))
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
    island = origin.kind == "cast" and origin.explicit and _BYTES.get(wanted, 8) < _BYTES.get(culprit.dtype, 0)
    if island and culprit.holder is None and not _same_line(origin.place, site):
        # what computes wide on purpose stays wide: its result comes back where it widened the stream, else where it is refused
        widened = next((s.place for s in reversed(flow) if s.how == "promotion" and s.place.stack and s.place.stack[0].user), None)
        edit = _edits.at_widening(recording, widened, wanted) if widened else _edits.at_call(recording, site, refused.op, culprit.index, wanted)
        if edit is not None:
            why = f"{culprit.dtype} is on purpose at {_short(here)}: bring the result back to {wanted} {'where it widens the rest' if widened else 'here'}"
            return Fix("cast", widened or site, (edit,), True, why, (f"compute in {wanted} at {_short(here)}, where range and precision allow",))
    ready = graph.table(recording, origin.place, culprit.dtype) if _BYTES.get(wanted, 8) < _BYTES.get(culprit.dtype, 0) else graph.NOWHERE
    if ready.stack and (edit := _edits.at_widening(recording, ready, wanted)) is not None:
        why = f"keep computing it in {culprit.dtype}, and cast it to {wanted} here, before it meets the rest"
        return Fix("cast", ready, (edit,), True, why, (f"compute in {wanted} from {_short(here)} on, where range and precision allow",))
    edit = _edits.at_birth(recording, origin.kind, here, wanted) if origin.op != "set_default_dtype" else None
    why = kinds.get(origin.kind, f"make it {wanted}")
    return Fix("dtype", here, (edit,) if edit else (), True, why, (at_site,) if at_site else ())


def _same_line(born: Place, site: Place) -> bool:
    return (born.file, born.line) == (site.file, site.line)


def _from_user(place: Place):
    """The stack from the user's innermost frame on."""
    user = place.user_frame
    return place.stack[place.stack.index(user) :] if user in place.stack else place.stack


def _at_use(recording: Recording, refused: Refused, culprit: Operand, wanted: str | None, site: Place) -> Fix | None:
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
    edit = _edits.at_call(recording, site, refused.op, culprit.index, to)
    return Fix("cast", site, (edit,) if edit else (), True, why, (f"keep {culprit.dtype} from being chosen at {_short(origin.place)}",))


def _limit(refused: Refused, number: Operand, site: Place) -> str:
    """The lowest or highest number of the dtype that refused one, as the program would write it."""
    tensors = (w for w in refused.witnesses if not w.dtype.startswith("python"))
    frame, dtype = site.stack[0] if site.stack else None, dict(refused.dtypes).get("type", "")
    names = (w.name or frame and _source.argument(frame, refused.op, refused.module, w.argument, w.index) for w in tensors)
    name = next((f"{name}.dtype" for name in names if name), _spell(dtype) if dtype else "x.dtype")
    return f"torch.{'iinfo' if 'int' in dtype else 'finfo'}({name}).{'min' if number.name.startswith('-') else 'max'}"


def _spell(dtype: str) -> str:
    return f"torch.{dtype}"
