"""What else may repair a collision, in words beside the fix: each is tested by the checks that a diff has to pass.

What a library itself offers is named only where the recording shows its function: on the stack where the dtype was born
or where it was refused, or somewhere in the run. Nothing is concluded from what is merely installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .. import graph
from ..foresight import DtypeChange
from ..records import Fix, Frame
from ..source import editing
from ..tables.dtypes import HALF, wider
from ..tables.english import quoted
from . import autocast_off, checks, effects
from .advice import advise
from .case import Case, one, short, spell


def others(case: Case) -> tuple[str, ...]:
    """The alternatives that do not depend on where the dtype was born."""
    return (*autocast(case), *kept_wide(case), *at_site(case))


# ---------------------------------------------------------------- in the call


def at_site(case: Case) -> tuple[str, ...]:
    """A cast in the refused call, with its disadvantage; none where something objects."""
    if not case.passed and not (case.reached and case.culprit.handed) or case.wanted is None:
        return ()
    edits = case.cast_at_call(case.wanted)
    named = case.culprit.written or case.culprit.holder or case.witness.name
    if not named and not edits:
        return ()  # a container passes it on: the line shows no such operand
    effect = effects.Effect(DtypeChange(), {case.witness.index: case.wanted})
    if checks.objection(case, advise(case.site, "", edits=edits, kind="cast")) or checks.objection_to(case, effect):
        return ()
    return tuple(filter(None, (_at_site(case),)))


def kept_wide(case: Case) -> tuple[str, ...]:
    """A gradient cast to the dtype of an optimizer's wider state, which then keeps what small steps add up to."""
    culprit, wanted = case.culprit, case.wanted
    if case.refused.phase != "optimizer" or wanted not in HALF or not wider(culprit.dtype, wanted):
        return ()
    others = [w for w in case.refused.witnesses if w.dtype == wanted and not w.trained]
    if len(others) != 1 or not others[0].name:
        return ()
    effect = effects.Effect(DtypeChange(), {others[0].index: culprit.dtype})
    if checks.objection_to(case, effect):
        return ()
    kept, cast = quoted(culprit.shown), quoted(others[0].name)
    only = f"cast {cast} to {culprit.dtype} wherever the step takes it ({short(case.site)})"
    return (f"keep {kept} in {culprit.dtype}, which loses no small steps: {only}",)


def _at_site(case: Case) -> str:
    refused, culprit = case.refused, case.culprit
    writes = refused.op == "setitem" or refused.op.endswith("_")
    if refused.code == "DT107" and case.witness.argument == "self" and writes:
        stays = f"keep {quoted(culprit.shown)} in {culprit.dtype}"
        return f"{stays}, and cast what is written into it to {culprit.dtype} ({short(case.site)})"
    if case.writes_into:  # what the call writes would go into the cast copy
        return ""
    if culprit.holder not in ("parameter", "buffer") or not refused.module:
        there = f"at the call ({short(case.site)})"
        only = "" if checks.other_modules(case) else ", which fixes only this call"
        return f"cast {quoted(culprit.shown)} to {case.wanted} {there}{only}"
    if case.origin.kind in ("parameter", "load"):
        return ""
    whole = all(p.dtype == culprit.dtype for p in refused.model)  # then casting one layer is not enough
    scope = refused.module.partition(".")[0] if whole else refused.module
    return f"cast all of {scope} to {case.wanted} after the model is made"


# ---------------------------------------------------------------- where it was cast


def uncast(case: Case) -> tuple[str, ...]:
    """The cast left out that decided the dtype, where that gives a dtype that the call takes."""
    return ("remove this cast",) if case.origin.kind == "cast" and _without_cast(case) else ()


def needless(case: Case) -> Iterator[Fix]:
    """The cast left out of what had the right dtype already, where a variable names the other one for more than it."""
    before = _without_cast(case)
    if case.origin.kind != "cast" or before != case.wanted or not editing.names_variable(case.recording, case.here):
        return
    edits = one(editing.uncast(case.recording, case.here))
    cast = next((edit.after for edit in edits if edit.after), case.culprit.shown)
    why = f"without it, {quoted(cast)} stays {before}"
    yield advise(case.here, "leave this cast out", why, edits=edits, safe=True, others=others(case))


def _without_cast(case: Case) -> str:
    """The dtype before the cast, if the refused call takes it; empty where the cast changed nothing."""
    recording = case.recording
    here = [e for e in recording.events if e.how == "cast" and graph.place_of(recording, e.place) == case.here]
    sources = {dtype for e in here for dtype in e.source}
    if len(sources) != 1 or case.culprit.dtype in sources or case.refused.wants == "kernel":
        return ""  # of a call that was refused for one dtype alone, it is not known what else was cast with it
    source = sources.pop()
    effect = effects.born_as(case, case.here, source)
    return "" if checks.objection_to(case, effect) else source


# ---------------------------------------------------------------- under autocast


def autocast(case: Case) -> tuple[str, ...]:
    """The autocast region that would repair it; none where autocast would not.

    Where trained weights meet half precision, autocast computes in half and keeps the weights in float32. A half weight
    has a resolution of 2**-8 or 2**-11 of its size; an update smaller than half of that is lost.
    """
    weight, half = next((w for w in case.refused.witnesses if w.trained), None), case.half
    if weight is None or case.refused.autocast or not half:
        return ()
    region = f'torch.autocast("{weight.device.partition(":")[0]}", dtype={spell(half)})'
    if weight.dtype == half:
        why = f"because {weight.dtype} weights lose small updates"
        return (f"use float32 for the weights that you train, {why}, and run the forward under {region}",)
    if _half_elsewhere(case, half):
        return ()
    return (f"run this under {region}, which leaves the trained weights in float32",)


def _half_elsewhere(case: Case, half: str) -> bool:
    """Whether a float32 weight is among weights that are trained in half precision, or was half in this call before."""
    if any(p.trained and p.dtype == half for p in case.refused.model):
        return True
    same = (o for o in autocast_off.earlier(case.recording, case.refused) if not o.autocast)
    return any(i.holder == "parameter" and i.dtype == half for o in same for i in o.inputs)


# ---------------------------------------------------------------- what a library offers


@dataclass(frozen=True, slots=True)
class Way:
    """What to use, and where the library's function must have been seen.

    ``functions``: names of which a frame must have one; empty for any function. ``file``: a part of its file's name.
    """

    library: str
    words: str
    functions: frozenset[str] = frozenset()
    file: str = ""
    seen: Callable[[Case], Iterator[Frame]] = lambda case: _born(case)
    applies: Callable[[Case], bool] = lambda case: True


def _born(case: Case) -> Iterator[Frame]:
    yield from case.origin.place.stack
    for step in case.flow:
        yield from step.place.stack


def _refused(case: Case) -> Iterator[Frame]:
    yield from case.site.stack


def _anywhere(case: Case) -> Iterator[Frame]:
    for place in case.recording.places:
        yield from place.stack


def _scaler_refused(case: Case) -> bool:
    return case.refused.code == "DT116"


def _half_meets_wide(case: Case) -> bool:
    dtypes = {w.dtype for w in case.refused.witnesses}
    return bool(dtypes & HALF) and "float32" in dtypes


def _half_weights(case: Case) -> bool:
    """Whether the weights are in half: a way to have them in float32 changes nothing where they are."""
    return any(w.holder == "parameter" and w.dtype in HALF for w in case.refused.witnesses)


WAYS: tuple[Way, ...] = (
    Way(
        "peft",
        "peft's autocast_adapter_dtype decides it: True makes adapters float32, False leaves them in the base's dtype",
        frozenset({"get_peft_model", "inject_adapter_in_model", "cast_adapter_dtype", "add_adapter"}),
    ),
    Way(
        "peft",
        "prepare_model_for_kbit_training() makes it float32: run the forward under autocast, or do not call this "
        "function",
        frozenset({"prepare_model_for_kbit_training"}),
    ),
    Way(
        "diffusers",
        "diffusers.training_utils.cast_training_params(model, dtype=torch.float32) does this for all that is trained",
        seen=_anywhere,
        applies=_scaler_refused,
    ),
    Way(
        "diffusers",
        "compute the VAE in float32: call pipe.upcast_vae(), or vae.to(torch.float32) if you have no pipeline; in both "
        "cases, give it float32 latents",
        file="autoencoder",
        seen=_refused,
        applies=_half_weights,
    ),
    Way(
        "transformers",
        "transformers keeps the modules named in a model's _keep_in_fp32_modules in float32 where it loads in float16",
        frozenset({"from_pretrained"}),
        applies=_half_meets_wide,
    ),
    Way(
        "lightning",
        'Trainer(precision="bf16-mixed") lets Lightning put autocast around each step',
        seen=_refused,
        applies=_half_meets_wide,
    ),
    Way(
        "accelerate",
        "run this call under torch.autocast too, or call accelerator.unwrap_model(model, keep_fp32_wrapper=False): "
        "Accelerator.prepare() makes what the model returns float32",
        frozenset({"convert_to_fp32", "_convert_to_fp32"}),
        applies=_half_meets_wide,
    ),
    Way(
        "accelerate",
        'Accelerator(mixed_precision="bf16") puts autocast around the forward of a prepared model',
        seen=_refused,
        applies=_half_meets_wide,
    ),
)


def named(case: Case, fix: Fix) -> Fix:
    """The fix, with the ways of the libraries whose functions the recording shows among its alternatives."""
    ways = tuple(way.words for way in WAYS if way.applies(case) and any(_is(way, frame) for frame in way.seen(case)))
    new = tuple(words for words in ways if words not in fix.alternatives)
    return replace(fix, alternatives=(*new, *fix.alternatives)) if new else fix


def _is(way: Way, frame: Frame) -> bool:
    """Whether a frame runs a function of the way's library."""
    if frame.user or f"/{way.library}/" not in frame.file.replace("\\", "/"):
        return False
    function = frame.function.rpartition(".")[2]
    return (not way.functions or function in way.functions) and way.file in frame.file.rpartition("/")[2]
