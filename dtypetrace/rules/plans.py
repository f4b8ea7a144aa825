"""The precision plan (DT401 to DT503): settings that cannot work together, or that do not do what they seem to.

The settings are the dtypes of weights, autocast, loss scaler and optimizer. They are judged from what the objects hold
before a step (``preflight``) and from the operands of a run's ops. What a run has measured is not predicted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .. import graph
from ..records import Edit, Finding, FlowStep, Op, Operand, Origin, Parameter, Place, Plan, Recording, Shared
from ..source import optimizers, regions
from ..source.optimizers import ByHand
from ..tables.english import quoted
from ..tables.operators import SCALER_CHECKS, name_of
from . import titles, wide_weights
from .advice import advise
from .silent_findings import At, silent_finding
from .training import MOST_SHOWN

BULK = 0.5
"""Of the weights, counted in numbers: a smaller share (norms kept in another dtype) is not a plan."""
MANY = 0.1
"""Of the numbers of a gradient that became zero: from there on the loss of them is a finding by itself."""
MOST_SHAPES = 3
"""Shapes of an optimizer's stale parameters that the text names."""
OTHER_HALF = {"float16": "bfloat16", "bfloat16": "float16"}
_Words = tuple[str, str]
"""What to change, and why or how."""
_NO_SCALER = "turn the loss scaler off", "it is for float16, and bfloat16 has float32's range"
_SCALE_LOSS = (
    "scale the loss",
    "scaler = torch.amp.GradScaler(device), scaler.scale(loss).backward(), "
    "scaler.step(optimizer), scaler.update(); or let autocast compute in bfloat16",
)
_WIDE_WEIGHTS = "keep the trained weights in float32, and let autocast compute in float16", ""
_CANNOT_HOLD = {
    "float16": "values above 65504 overflow float16",
    "bfloat16": "float16 weights lose three bits in bfloat16",
}
"""What goes wrong where autocast computes in a dtype, and the weights are of the other half dtype."""
_REHEARSED = {
    "state underflow": "the optimizer's state underflows for {}",
    "below resolution": "the optimizer's steps are too small to change {}",
    "untouched": "the optimizer's step does not change {}",
    "broken": "the optimizer's step makes {} infinite or NaN",
    "overshoot": "the optimizer's steps are far too large for {}",
}
"""The title of a rehearsal, by its mechanism."""
_UNSCALED = "autocast computes in float16 without a loss scaler"
_CANNOT_TRAIN = "the optimizer cannot train {}"


def find(recording: Recording) -> Iterator[Finding]:
    """Findings DT401 to DT503: from what ran, then from the plans that were looked at; each code once."""
    found: set[str] = set()
    trains = any(op.phase in ("backward", "optimizer") for op in recording.ops)
    planned = [f for plan in recording.plans if trains or plan.asked for f in judge(recording, plan)]
    ran = list(_from_ops(recording))
    if not any(f.code == "DT401" for f in (*ran, *planned)):  # whose remedy leaves nothing to scale
        ran += _unscaled_backward(recording)
    for finding in (*ran, *planned):
        if finding.code not in found:
            found.add(finding.code)
            yield replace(finding, title=titles.specific(finding))  # preflight shows them as they are


def judge(recording: Recording, plan: Plan) -> Iterator[Finding]:
    """What is wrong with a plan."""
    names = frozenset(plan.trained)
    trained = [p for p in plan.parameters if p.name in names]
    for rule in (_quantised, _stale, _scaled, _among_ranks, _unscaled_autocast, _other_half, _rehearsed):
        yield from rule(recording, plan, trained)


def _quantised(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """DT402: integers take no gradient. Who froze floating parameters and trains others chose what is trained."""
    if not plan.quantised or plan.adapted or trained and len(trained) < len(plan.parameters):
        return
    if not plan.held or not trained and any(u.held for u in recording.updates):
        return  # another model is trained beside it, whether or not all of this one was frozen
    split = (p.name.rpartition(".") for p in trained)
    if {owner for owner, _, name in split if name != "bias"}.issuperset(plan.quantised):
        return  # their scales are trained
    first, count = plan.quantised[0], len(plan.quantised)
    names = titles.shared([first], count)
    title = f"the quantised weights of {names} cannot be trained, and the model has no adapter"
    change, other = "put LoRA adapters on the quantised modules", "load the model without quantisation"
    chosen, lines = (Parameter(first, "int8", 0),), _adapters(recording, plan)
    said = "integers get no gradient"
    yield _finding(recording, plan, "DT402", "error", chosen, said, change, lines, other, title=title)


def _adapters(recording: Recording, plan: Plan) -> tuple[ByHand, ...]:
    """The line that puts adapters on the quantised modules."""
    layers = sorted({part for name in plan.quantised if (part := name.rpartition(".")[2])})
    model = optimizers.given_first(recording.text, graph.place_of(recording, plan.place)) or "model"
    shown = ", ".join(f'"{layer}"' for layer in layers)
    made = f"{model} = peft.get_peft_model({model}, peft.LoraConfig(target_modules=[{shown}]))"
    return (ByHand(f"before the line that makes the optimizer: add `{made}`"),) if layers else ()


def _stale(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """DT403: the optimizer holds parameters that the model has replaced."""
    if plan.stale:
        shapes = ", ".join(plan.stale[:MOST_SHAPES])
        title = f"the optimizer updates old weights, which {plan.model} no longer uses"
        said = f"the optimizer still holds the old weights ({shapes}); {plan.model} uses new ones"
        change = "build the optimizer after the weights have been cast or replaced"
        lines = _below_the_new(recording, plan, trained[0]) if trained else ()
        yield _finding(recording, plan, "DT403", "error", tuple(trained[:1]), said, change, lines, title=title)


def _below_the_new(recording: Recording, plan: Plan, new: Parameter) -> tuple[ByHand, ...]:
    """The line that makes the optimizer and where it belongs, if both lines are in one function."""
    place = graph.place_of(recording, plan.place)
    made = optimizers.training(recording.text, place)
    replaced = graph.origin(recording, new.event, new.dtype, new.name).place.user_frame
    step = place.user_frame
    if made is None or replaced is None or step is None or made.made.line >= replaced.line:
        return ()
    if (replaced.file, replaced.function) != (step.file, step.function):
        return ()
    line = f"the line that makes {quoted(made.optimizer)} ({made.at(made.made.line)})"
    below = optimizers.short(replaced.file, replaced.line)
    return (ByHand(f"move {line} below {below}", made.made.file, made.made.line),)


def _scaled(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """DT501 and DT502: a loss scaler with weights of half precision."""
    kinds = (("bfloat16", "DT501", "warning", _NO_SCALER), ("float16", "DT502", "error", _WIDE_WEIGHTS))
    for dtype, code, severity, change in kinds if plan.scaler else ():
        chosen = tuple(p for p in trained if p.dtype == dtype)
        if chosen:
            said = (
                f"{len(chosen)} of {len(trained)} trained parameters, such as {chosen[0].name}, are {dtype}, "
                "and so are their gradients"
            )
            yield _finding(recording, plan, code, severity, chosen, said, change)


def _unscaled_autocast(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """DT404: autocast will compute in float16, and nothing will scale the loss."""
    chosen = tuple(p for p in trained if p.dtype == "float32")
    if plan.asked and plan.autocast == "float16" and not plan.scaler and chosen:
        said = f"the gradients of {_many(chosen)} pass through float16: below 3e-08 they become zero"
        yield _finding(recording, plan, "DT404", "warning", chosen, said, _SCALE_LOSS, title=_UNSCALED, at_birth=False)


def _other_half(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """DT401: autocast computes in one half dtype, and the weights are of the other."""
    other = OTHER_HALF.get(plan.autocast)
    if other is not None:
        chosen = [p for p in plan.parameters if p.dtype == other]
        yield from _autocast(recording, plan, chosen, plan.autocast)


def _rehearsed(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """DT503: what the optimizer's step did to a copy of some weights."""
    for trial in plan.trials:
        named = tuple(p for p in trained if p.name == trial.name)
        chosen = named or (Parameter(trial.name or "a parameter", trial.dtype, 0),)
        facts = trial.facts or (trial.outcome,)
        title = _REHEARSED.get(trial.outcome, _CANNOT_TRAIN).format(f"{trial.dtype} {_many(chosen)}")
        said = f"trial steps on a separate 8 x 8 tensor, with numbers copied from {quoted(chosen[0].name)}: {facts[0]}"
        change = f"keep the trained weights in float32, and let autocast compute in {trial.dtype}"
        yield _finding(recording, plan, "DT503", "warning", chosen, said, change, facts=facts[1:], title=title)


# ---------------------------------------------------------------- several ranks


def _among_ranks(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterator[Finding]:
    """The settings of DDP or FSDP, against the loss scaler, autocast and the gradients that are there."""
    for shared in plan.shared:
        below = [p for p in trained if p.name.startswith(shared.module)] or trained
        if below:
            yield from _unscaled(recording, plan, shared, below)
            yield from _cast_twice(recording, plan, shared, below)
            yield from _buckets(recording, plan, shared, below)


def _whose(shared: Shared) -> str:
    return f"{shared.by} of {shared.module}" if shared.module else shared.by


def _unscaled(recording: Recording, plan: Plan, shared: Shared, below: list[Parameter]) -> Iterator[Finding]:
    """DT404: float16 is computed or averaged in, and no gradient is scaled for it."""
    scaled = plan.scaler or graph.scaler_check(recording) is not None
    computes = shared.computes == "float16"
    if scaled or not computes and shared.reduces != "float16":
        return
    does = "computes" if computes else "averages gradients"
    by_ddp = bool(shared.built)
    scale = "scale the loss" if by_ddp else "scale the loss with ShardedGradScaler"
    change = "set reduce_dtype to bfloat16 or float32"
    if computes:
        change = "set param_dtype to bfloat16"
    elif by_ddp:
        change = "let DDP average gradients in bfloat16 (bf16_compress_hook) or float32 (no hook)"
    title = f"{shared.by} {does} in float16 without a loss scaler"
    said = f"{_whose(shared)} passes gradients through float16: below 3e-08 they become zero"
    change = f"{change}, or {scale}"
    yield _finding(recording, plan, "DT404", "warning", tuple(below), said, change, title=title, at_birth=False)


def _cast_twice(recording: Recording, plan: Plan, shared: Shared, below: list[Parameter]) -> Iterator[Finding]:
    """DT401: the parameters are cast to one half dtype, and autocast computes in the other."""
    ran = {op.autocast.partition(":")[2] for op in recording.ops if op.autocast}
    other = OTHER_HALF.get(shared.computes)
    if other in ({plan.autocast} if plan.autocast else ran):
        said = f"{_whose(shared)} casts the parameters to {shared.computes}; autocast then computes in {other}"
        change = f"leave autocast out, or let both compute in {shared.computes}"
        yield _finding(recording, plan, "DT401", "warning", tuple(below), said, change)


def _buckets(recording: Recording, plan: Plan, shared: Shared, below: list[Parameter]) -> Iterator[Finding]:
    """DT405: parameters or gradients are of another dtype than the buckets that DDP made for them."""
    recast = tuple(p for p in below if shared.built and p.dtype not in shared.built)
    cast = tuple(p for p in below if p.name in plan.cast_gradients)
    if recast:
        made = " and ".join(shared.built)
        said = f"DDP made its buckets when the weights were {made}"
        title = f"DDP has {made} buckets for the {recast[0].dtype} gradients of {_many(recast)}"
        change = "cast the model before DDP is built"
        yield _finding(recording, plan, "DT405", "warning", recast, said, change, title=title)
    elif shared.built and plan.asked and cast:
        said = "DDP made its buckets in the dtype of the weights, and refuses other gradients in the next backward pass"
        change = "leave gradients in their parameter's dtype, "
        change += "or drop them before the next backward (zero_grad(set_to_none=True))"
        title = f"the gradients of {_many(cast)} have another dtype than DDP's buckets"
        yield _finding(recording, plan, "DT405", "error", cast, said, change, title=title)


# ---------------------------------------------------------------- autocast


def _autocast(recording: Recording, plan: Plan, chosen: list[Parameter], computes: str) -> Iterator[Finding]:
    """DT401, where most weights are of the dtype that was chosen for them."""
    total = sum(p.size for p in plan.parameters)
    if chosen and sum(p.size for p in chosen) >= BULK * total:
        dtype = chosen[0].dtype
        said = (
            f"{len(chosen)} of {len(plan.parameters)} parameters are {dtype}, such as {chosen[0].name}; "
            f"autocast computes in {computes}"
        )
        every = len(chosen) == len(plan.parameters)
        weights = "the weights are" if every else f"{len(chosen)} of {len(plan.parameters)} weights are"
        title = f"autocast computes in {computes}, and {weights} {dtype}"
        lines = tuple(map(optimizers.by_hand, computing_in(recording, graph.place_of(recording, plan.place), dtype)))
        change, why, other = f"let autocast compute in {dtype}", "", "keep the weights in float32"
        if graph.has_scaler(recording):
            why = "then the loss scaler is not needed" if dtype == "bfloat16" else ""
            other += ": then autocast and the loss scaler can stay as they are"
        facts, words = (_CANNOT_HOLD[computes],), (change, why)
        yield _finding(
            recording, plan, "DT401", "warning", tuple(chosen), said, words, lines, other, facts=facts, title=title
        )


def computing_in(recording: Recording, place: Place, dtype: str) -> tuple[Edit, ...]:
    """The edits that make the autocast region around a place compute in another dtype, and turn off the loss scaler,
    which bfloat16 does not need; none where the region names no dtype."""
    region = regions.statement(recording.text, place)
    edit = optimizers.computing_in(recording.text, region, dtype) if region is not None else None
    if edit is None or dtype != "bfloat16" or not graph.has_scaler(recording):
        return () if edit is None else (edit,)
    checked = graph.scaler_check(recording)
    off = optimizers.without_scaler(recording.text, graph.place_of(recording, checked.place) if checked else place)
    return (edit,) if off is None else (edit, off)


# ---------------------------------------------------------------- what ran


def _from_ops(recording: Recording) -> Iterator[Finding]:
    yield from _scaled_bfloat16(recording)
    yield from _scaled_without_float16(recording)
    if any(op.phase == "backward" for op in recording.ops):
        for computes, other in OTHER_HALF.items():
            yield from _cast_by_autocast(recording, computes, other)


def _scaled_bfloat16(recording: Recording) -> Iterator[Finding]:
    """DT501: a loss scaler looked at bfloat16 gradients."""
    for op in recording.ops:
        gradient = next((i for i in op.inputs if i.dtype == "bfloat16"), None)
        if op.aten.startswith(SCALER_CHECKS) and gradient is not None:
            updated = _updated(recording, "bfloat16") or (Parameter("a gradient", "bfloat16", 1, gradient.event),)
            said = f"the scaler unscales the bfloat16 gradients of {_many(updated)}, which need no scaling"
            yield _finding(recording, Plan(op.place, ""), "DT501", "warning", updated, said, _NO_SCALER)
            return


def _scaled_without_float16(recording: Recording) -> Iterator[Finding]:
    """DT501: a loss scaler in a run in which nothing is float16."""
    checked = graph.scaler_check(recording)
    if checked is None or any("float16" in op.outputs for op in recording.ops):
        return
    computes = "bfloat16" if any("bfloat16" in op.outputs for op in recording.ops) else "float32"
    updated = _updated(recording) or (Parameter("a weight", computes, 1),)
    said = f"nothing is float16, so the loss needs no scaling: the run computes in {computes}"
    yield _finding(recording, Plan(checked.place, ""), "DT501", "warning", updated, said, _NO_SCALER)


def _unscaled_backward(recording: Recording) -> Iterator[Finding]:
    """DT404: gradients passed through float16, and nothing scaled the loss, even where a scaler divides them by its
    scale; a note where values were measured and none became zero. Many that did are a finding of their own. A loss that
    ends in a product with a number may be scaled by hand."""
    backward = [op for op in recording.ops if op.phase == "backward" and op.of >= 0]
    through = [op for op in backward if "float16" in op.outputs and recording.ops[op.of].autocast.endswith(":float16")]
    check = graph.scaler_check(recording)
    scaled = any(_scales(recording.ops[op.of]) for op in backward) if check is not None else graph.has_scaler(recording)
    if not through or not int(recording.meta.get("steps", 0)) or scaled:
        return
    by_hand = name_of(recording.ops[backward[0].of]) == "mul" and len(recording.ops[backward[0].of].inputs) < 2
    measured = [v for v in recording.values if recording.ops[v.op].phase == "backward"]
    if by_hand or any(v.flushed > MANY * v.nonzero or v.emptied for v in measured if v.nonzero):
        return
    first = min(through, key=lambda op: op.of)
    chosen = _updated(recording) or (Parameter("a weight", "float32", 1),)
    title = _UNSCALED
    seen = "few or none did in the measured steps" if measured else "values were not measured"
    said = f"the gradients of {_many(chosen)} pass through float16: below 3e-08 they become zero; {seen}"
    if check is not None:
        title = "a loss scaler divides the gradients of a loss that it did not scale"
        said = f"the gradients of {_many(chosen)} pass through float16 as they are; the scaler then divides them"
    harmless = check is None and measured and not any(v.flushed for v in measured)
    plan, severity = Plan(recording.ops[first.of].place, ""), "note" if harmless else "warning"
    yield _finding(recording, plan, "DT404", severity, chosen, said, _SCALE_LOSS, title=title, at_birth=False)


def _scales(op: Op) -> bool:
    """Whether an op may be a scaler's product: with a tensor of one number."""
    return name_of(op) == "mul" and len(op.inputs) == 2 and any(i.shape == () for i in op.inputs)


def _updated(recording: Recording, gradients: str = "") -> tuple[Parameter, ...]:
    """The parameters that optimizers stepped, or those whose gradients are of one dtype."""
    updates = (u for u in recording.updates if gradients in ("", u.gradient_dtype))
    return tuple(Parameter(u.name, u.dtype, 1, u.event) for u in updates)


def _cast_by_autocast(recording: Recording, computes: str, other: str) -> Iterator[Finding]:
    """DT401: autocast casts parameters of one half dtype to the other."""
    op = next((op for op in recording.ops if _casts_parameter(op, computes, other)), None)
    if op is None:
        return
    named: Mapping[str, Parameter] = {p.name: p for p in recording.parameters}
    first = next(i for i in op.inputs if i.holder == "parameter" and i.dtype == other)
    chosen = [p for p in named.values() if p.dtype == other]
    chosen = chosen or ([] if named else [Parameter(first.name or "a weight", other, 1, first.event)])
    yield from _autocast(recording, Plan(op.place, "", tuple(named.values()) or tuple(chosen)), chosen, computes)


def _casts_parameter(op: Op, computes: str, other: str) -> bool:
    if not op.autocast.endswith(":" + computes) or not op.aten.startswith("_to_copy") or computes not in op.outputs:
        return False
    return any(i.holder == "parameter" and i.dtype == other for i in op.inputs)


# ---------------------------------------------------------------- the finding


def _many(chosen: tuple[Parameter, ...]) -> str:
    return titles.shared([p.name for p in chosen], len(chosen))


def _finding(
    recording: Recording,
    plan: Plan,
    code: str,
    severity: str,
    chosen: tuple[Parameter, ...],
    said: str,
    change: str | _Words,
    lines: tuple[ByHand, ...] = (),
    other: str = "",
    *,
    facts: tuple[str, ...] = (),
    title: str = "",
    at_birth: bool = True,
) -> Finding:
    """``change`` is to be made where the first parameter got its dtype; what is no matter of weights (not
    ``at_birth``), where the plan was seen. ``title``: with the names of this plan, where ``titles`` makes none."""
    site = graph.place_of(recording, plan.place)
    first = chosen[0] if chosen else None
    operands = tuple(
        Operand(n, p.name, p.dtype, (), "", "parameter", graph.origin(recording, p.event, p.dtype, p.name))
        for n, p in enumerate(chosen[:MOST_SHOWN])
    )
    origin = operands[0].origin if operands else Origin("input", None, None, site)
    known = at_birth and first is not None and first.event >= 0
    born = graph.flow(recording, first.event, first.dtype)[:1] if known and first is not None else ()
    ends = FlowStep(site, "", "", first.dtype if first is not None else "", "", "value", said=said)
    no_scaler = change is _NO_SCALER
    if no_scaler and (edit := optimizers.without_scaler(recording.text, site)):
        lines = (optimizers.by_hand(edit),)
    if change is _WIDE_WEIGHTS and first is not None:
        change, lines = wide_weights.advice(recording, origin, first.dtype, site)
    at_origin = origin.place.stack and at_birth and not no_scaler
    # what is to be set elsewhere has no line that is known; the site only shows it
    place = origin.place if at_origin else site if at_birth or lines else graph.NOWHERE
    words, others = [change] if isinstance(change, str) else change, (other,) if other else ()
    return silent_finding(
        code,
        At(site, "other", ""),
        kind="plan",
        severity=severity,
        operands=operands,
        flow=(*born, ends),
        fix=advise(place, *words, kind="plan", others=others, lines=lines),
        count=len(chosen) or 1,
        title=title,
        notes=facts,
        weights=[p.name for p in chosen],
        predicted=plan.model != "",
    )
