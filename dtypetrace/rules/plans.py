"""The precision plan: dtypes of weights, autocast, loss scaler and optimizer that cannot work together, or that do not do
what they seem to.

Judged from what the objects hold before a step (``preflight``) and from what the ops of a run were given. What a run has
measured is not foretold again.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import graph
from ..records import Finding, Fix, FlowStep, Operand, Origin, Parameter, Plan, Recording
from ..tables.codes import TITLES

BULK = 0.5
"""Of the weights, counted in numbers: below it, a few odd ones (norms kept in another dtype) are no plan."""
CHECKS = "_amp_foreach_non_finite_check_and_unscale_"
"""The operator by which a loss scaler looks at gradients and divides them."""


def find(recording: Recording) -> Iterable[Finding]:
    """Findings DT401 to DT503: from the plans that were looked at, then from what ran."""
    told = set()
    trains = any(op.phase in ("backward", "optimizer") for op in recording.ops)
    for finding in (
        *_from_ops(recording),
        *(f for plan in recording.plans if trains or plan.asked for f in judge(recording, plan)),
    ):
        if finding.code not in told:
            told.add(finding.code)
            yield finding


def judge(recording: Recording, plan: Plan) -> Iterable[Finding]:
    """What is wrong with a plan."""
    trained = [p for p in plan.parameters if p.name in plan.trained]
    # who froze floating parameters and trains others chose what is trained: norms, a head
    if plan.quantised and not plan.adapted and (not trained or len(trained) == len(plan.parameters)):
        names = (
            f"{len(plan.quantised)} modules, {plan.quantised[0]} among them"
            if len(plan.quantised) > 1
            else plan.quantised[0]
        )
        yield _finding(
            recording, plan, "DT402", "error", [Parameter(plan.quantised[0], "int8", 0)],
            f"{names}: integers take no gradient, and no trainable matrix lies beside them",
            "put LoRA adapters on the quantised modules, or load the model without quantisation",
        )  # fmt: skip
    if plan.stale:
        yield _finding(
            recording, plan, "DT403", "error", trained[:1], f"the optimizer holds parameters of shape {', '.join(plan.stale[:3])} which {plan.model} has replaced by others",
            "build the optimizer after the weights have been cast or replaced",
        )  # fmt: skip
    if plan.scaler:
        for dtype, code, what in (("bfloat16", "DT501", _NO_SCALER), ("float16", "DT502", _WIDE_WEIGHTS)):
            if chosen := [p for p in trained if p.dtype == dtype]:
                severity = "error" if dtype == "float16" else "warning"
                yield _finding(
                    recording,
                    plan,
                    code,
                    severity,
                    chosen,
                    f"{len(chosen)} of the {len(trained)} trained parameters are {dtype}, and so are their gradients: {chosen[0].name} is one",
                    what,
                )
    yield from _among_ranks(recording, plan, trained)
    if plan.autocast in ("float16", "bfloat16"):
        other = {"float16": "bfloat16", "bfloat16": "float16"}[plan.autocast]
        yield from _autocast(recording, plan, [p for p in plan.parameters if p.dtype == other], plan.autocast)
    for trial in plan.trials:
        chosen = [p for p in trained if p.name == trial.name] or [
            Parameter(trial.name or "a parameter", trial.dtype, 0)
        ]
        facts = trial.facts or (trial.outcome,)
        yield _finding(
            recording, plan, "DT503", "warning", chosen, f"in a rehearsal on a copy of {chosen[0].name}: {facts[0]}",
            f"keep the weights that are trained in float32, and compute in {trial.dtype} by autocast", facts[1:],
        )  # fmt: skip


_NO_SCALER = "leave the scaler out: it is for float16, and bfloat16 has float32's range"
_WIDE_WEIGHTS = "keep the weights that are trained in float32, and let autocast compute in float16"


def _among_ranks(recording: Recording, plan: Plan, trained: list[Parameter]) -> Iterable[Finding]:
    """What DDP or FSDP was told, against the loss scaler, autocast and the gradients that are there."""
    autocasts = (
        {plan.autocast} if plan.autocast else {op.autocast.partition(":")[2] for op in recording.ops if op.autocast}
    )
    scaled = plan.scaler or any(op.aten.startswith(CHECKS) for op in recording.ops)
    for shared in plan.shared:
        below = [p for p in trained if p.name.startswith(shared.module)] or trained
        if not below:
            continue
        whose = f"{shared.by} of {shared.module}" if shared.module else shared.by
        if "float16" in (shared.computes, shared.reduces) and not scaled:
            first = "computes" if shared.computes == "float16" else "averages gradients"
            yield _finding(
                recording, plan, "DT404", "warning", below, f"{whose} {first} in float16, and no gradient is scaled for it: below 6e-08 they become zero",
                "reduce gradients in bfloat16 or float32, or scale the loss (ShardedGradScaler under FSDP)"
                if shared.computes != "float16" else "set param_dtype to bfloat16, or scale the loss (ShardedGradScaler under FSDP)",
            )  # fmt: skip
        other = {"float16": "bfloat16", "bfloat16": "float16"}.get(shared.computes)
        if other in autocasts:
            yield _finding(
                recording, plan, "DT401", "warning", below, f"{whose} casts the parameters to {shared.computes}; autocast then computes in {other}",
                f"leave autocast out, or let both compute in {shared.computes}",
            )  # fmt: skip
        recast = [p for p in below if shared.built and p.dtype not in shared.built]
        if recast:
            yield _finding(
                recording, plan, "DT405", "warning", recast, f"{_many(recast)}: {recast[0].dtype} now, while DDP made its buckets for {' and '.join(shared.built)}",
                "cast the model before DDP is built",
            )  # fmt: skip
        elif shared.built and plan.asked and (cast := [p for p in below if p.name in plan.cast_gradients]):
            yield _finding(
                recording, plan, "DT405", "error", cast, f"{_many(cast)}: its gradient has another dtype than it, which DDP's next synchronised backward refuses",
                "leave gradients in their parameter's dtype, or drop them before the next backward (zero_grad(set_to_none=True))",
            )  # fmt: skip


def _autocast(recording: Recording, plan: Plan, chosen: list[Parameter], computes: str) -> Iterable[Finding]:
    total = sum(p.size for p in plan.parameters)
    if chosen and sum(p.size for p in chosen) >= BULK * total:
        dtype = chosen[0].dtype
        yield _finding(
            recording, plan, "DT401", "warning", chosen, f"{len(chosen)} of {len(plan.parameters)} parameters are {dtype}, {chosen[0].name} for one; autocast computes in {computes}",
            f"let autocast compute in {dtype}, or load the weights in float32",
            ("bfloat16 weights can hold what is infinite in float16",) if computes == "float16" else ("float16 weights lose three bits in bfloat16",),
        )  # fmt: skip


# ---------------------------------------------------------------- what ran


def _from_ops(recording: Recording) -> Iterable[Finding]:
    for op in recording.ops:
        if op.aten.startswith(CHECKS) and any(i.dtype == "bfloat16" for i in op.inputs):
            gradient = next(i for i in op.inputs if i.dtype == "bfloat16")
            plan = Plan(op.place, "")
            chosen = [
                Parameter(u.name, u.dtype, 1, u.step) for u in recording.updates if u.gradient_dtype == "bfloat16"
            ]
            chosen = chosen or [Parameter("a gradient", "bfloat16", 1, gradient.step)]
            yield _finding(
                recording,
                plan,
                "DT501",
                "warning",
                chosen,
                f"{_many(chosen)}: its gradients are bfloat16 where the scaler divides them",
                _NO_SCALER,
            )
            break
    checked = next((op for op in recording.ops if op.aten.startswith(CHECKS)), None)
    if checked is not None and not any("float16" in op.outputs for op in recording.ops):
        computes = "bfloat16" if any("bfloat16" in op.outputs for op in recording.ops) else "float32"
        chosen = [Parameter(u.name, u.dtype, 1, u.step) for u in recording.updates] or [
            Parameter("a weight", computes, 1)
        ]
        yield _finding(
            recording,
            Plan(checked.place, ""),
            "DT501",
            "warning",
            chosen,
            f"the scaler scales a loss that no float16 takes part in: the run computes in {computes}",
            _NO_SCALER,
        )
    trains = any(op.phase == "backward" for op in recording.ops)
    for computes, other in (("float16", "bfloat16"), ("bfloat16", "float16")):
        cast = [
            (op, i) for op in recording.ops if op.autocast.endswith(":" + computes) and op.aten.startswith("_to_copy")
            for i in op.inputs if i.holder == "parameter" and i.dtype == other and computes in op.outputs
        ]  # fmt: skip
        if cast and trains:
            op, first = cast[0]
            named = {p.name: p for p in recording.parameters}
            if not named or sum(p.size for p in named.values() if p.dtype == other) >= BULK * sum(
                p.size for p in named.values()
            ):
                chosen = [p for p in named.values() if p.dtype == other] or [
                    Parameter(first.name or "a weight", other, 1, first.step)
                ]
                plan = Plan(op.place, "", tuple(named.values()) or tuple(chosen))
                yield from _autocast(recording, plan, chosen, computes)


# ---------------------------------------------------------------- the finding


def _many(chosen: list[Parameter]) -> str:
    return f"{len(chosen)} parameters, {chosen[0].name} among them" if len(chosen) > 1 else chosen[0].name


def _finding(
    recording: Recording, plan: Plan, code: str, severity: str, chosen: list[Parameter], said: str, change: str, facts: Iterable[str] = ()
) -> Finding:  # fmt: skip
    """``change`` is to be made where the first of the chosen parameters got its dtype; what is no matter of weights, where the plan was seen."""
    site = graph.place_of(recording, plan.place)
    operands = tuple(
        Operand(i, p.name, p.dtype, (), "", "parameter", graph.origin(recording, p.step, p.dtype, p.name))
        for i, p in enumerate(chosen[:8])
    )
    culprit = operands[0] if operands else None
    origin = culprit.origin if culprit else Origin("input", None, None, site)
    born = graph.flow(recording, chosen[0].step, chosen[0].dtype)[:1] if chosen and chosen[0].step >= 0 else ()
    ends = FlowStep(site, "", "", chosen[0].dtype if chosen else "", "", "value", said=said)
    return Finding(
        code=code, kind="plan", severity=severity, title=TITLES[code], phase="other", op="", aten=None, module="", count=len(chosen) or 1,
        predicted=plan.model != "", site=site, operands=operands, culprit=culprit, flow=(*born, ends),
        fix=Fix("plan", origin.place if origin.place.stack and change is not _NO_SCALER else site, (), False, change), exception=None, notes=tuple(facts),
    )  # fmt: skip
