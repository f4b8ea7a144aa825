"""In which dtypes the work ran, and what could not be judged: one line each, the same in every view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..records import NotJudged, Op, Recording
from ..records.plain import to_plain
from ..tables.dtypes import DTYPES, HALF, REAL
from ..tables.english import listed
from ..tables.operators import COMPILED, flops

_LEAST_SHARE = 0.005
"""A smaller share is not named: it would be 0%."""


def work(recording: Recording) -> dict[str, dict[str, int]]:
    """``matmuls``: floating point operations of matmuls, convolutions and attentions by the dtype that they compute in;
    ``weights``: numbers of the parameters and buffers by dtype. The largest comes first."""
    matmuls: Counter[str] = Counter()
    for op in recording.ops:
        if amount := flops(op) * op.count:
            matmuls[_computes_in(op)] += amount
    weights: Counter[str] = Counter()
    for p in recording.parameters:
        weights[p.dtype] += p.size
    return {"matmuls": dict(matmuls.most_common()), "weights": dict(weights.most_common())}


def _computes_in(op: Op) -> str:
    """The narrowest floating operand's dtype: scales and masks are wider than what is multiplied."""
    floating = [i.dtype for i in op.inputs if i.dtype in REAL]
    return min(floating, key=lambda d: DTYPES[d].bits) if floating else op.outputs[0]


def work_line(recording: Recording) -> str:
    """``matmuls: 96% bfloat16, 4% float32; weights: bfloat16; LoRA weights: all 4 moved``; empty where none was
    seen."""
    return "; ".join(filter(None, (*work_parts(recording), lora(recording))))


def lora(recording: Recording) -> str:
    """What became of LoRA weights in a run that trains: whether each moved, where values were measured in two steps or
    more; before that the second matrix is still zero, and the first gets no gradient."""
    own = [p for p in recording.parameters if "lora" in p.name.lower() and p.holder == "parameter"]
    stepped = [u for u in recording.updates if u.held and not u.frozen]
    if not own or not stepped:
        return ""
    held = [u for u in stepped if "lora" in u.name.lower()]
    frozen, moved = sum(not p.trained for p in own), sum(u.moved > 0 for u in held)
    if not held:
        why = "requires_grad is off" if frozen else "no optimizer has them"
        return f"LoRA weights: none of {len(own)} is trained ({why})"
    if max(u.steps + u.zero for u in held) < 2 or not any(u.reached or u.zero for u in held):
        return ""
    left = f", {len(own) - len(held)} others are not trained" if len(held) < len(own) else ""
    how = "all" if moved == len(held) else f"{moved or 'none'} of"
    return f"LoRA weights: {how} {len(held)} moved{left}"


def work_parts(recording: Recording) -> list[str]:
    """What is known of the matmuls, then of the weights."""
    alone = {"weights": ", no master copy" if _alone(recording) else ""}
    known = ((what, amounts) for what, amounts in work(recording).items() if amounts)
    return [f"{what}: {_shares(amounts)}{alone.get(what, '')}" for what, amounts in known]


def _alone(recording: Recording) -> bool:
    """Whether most of what is trained has 16 bits, and no wide copy collects its updates."""
    own = [p for p in recording.parameters if p.trained and p.holder == "parameter"]
    if not recording.updates or 2 * sum(p.size for p in own if p.dtype in HALF) <= sum(p.size for p in own):
        return False
    from ..rules import master_weights

    return master_weights.copy(recording)[0] == master_weights.NONE


def _shares(amounts: Mapping[str, int]) -> str:
    total = sum(amounts.values())
    named = {dtype: n / total for dtype, n in amounts.items() if total and n / total >= _LEAST_SHARE}
    if len(amounts) == 1:
        return next(iter(amounts))
    most = 0.99  # a dtype is beside it
    rest = [] if len(named) == len(amounts) else ["the rest in other dtypes"]
    return ", ".join([*(f"{min(share, most):.0%} {dtype}" for dtype, share in named.items()), *rest])


def not_judged(recording: Recording) -> tuple[NotJudged, ...]:
    """What the findings cannot speak of: what hooks noted, and what needs values or more optimizer steps."""
    found = [*recording.not_judged, *compiled(recording)]
    meta = recording.meta
    if not meta.get("numerics", True):
        return (*found, NotJudged("values", "off"), *([NotJudged("updates", "off")] if meta.get("trains") else []))
    if not meta.get("trains"):
        return tuple(found)
    from ..rules.mechanisms import LEAST_STEPS  # rules are not loaded for a run in which there is nothing to judge

    steps = int(meta.get("steps", 0))
    if not steps:
        found.append(NotJudged("updates", "no step", needs=LEAST_STEPS))
    stepped = [u for u in recording.updates if u.held and not u.frozen]
    short = [u for u in stepped if max(u.steps, u.zero, u.absent, u.broken_gradient) < LEAST_STEPS]
    if steps and short:
        more = max(LEAST_STEPS - u.steps for u in short)
        found.append(NotJudged("updates", "few steps", count=len(short), needs=steps + more))
    return tuple(found)


def compiled(recording: Recording) -> tuple[NotJudged, ...]:
    """Compiled code that was not judged: its numbers; its dtypes, too, where no ledger of them was made; or how it
    would have run compiled."""
    if recording.meta.get("compiled") == "eager":
        return (NotJudged("compiled code", "ran eagerly"),)
    read = {recording.ops[r.call].op for r in recording.regions if r.graphs and r.call >= 0}
    calls = {(op.op, op.module) for op in recording.ops if op.aten == COMPILED}
    measured = {recording.ops[r.call].op for r in recording.regions if r.measured and r.call >= 0}
    inside = [op for op, _ in calls if op in read]
    once = sum(op in measured for op in inside)
    facts = (
        ("not watched inside", len(calls) - len(inside)),
        ("only its dtypes and roundings", len(inside) - once),
        ("only one call", once),
    )
    return tuple(NotJudged("compiled code", why, count=count) for why, count in facts if count)


def watched(recording: Recording) -> str:
    """``watched 14 of 5,000 steps: 1-6, 200 (a new optimizer), 1,024``; empty where each step was."""
    which = str(recording.meta.get("watched", ""))
    return f"watched {which}" if which else ""


def steps(recording: Recording) -> str:
    """``3 steps``, or ``5,000 steps, 14 of them watched``; empty without steps."""
    meta = recording.meta
    if "watched_steps" in meta:
        return f"{meta['all_steps']:,} steps, {meta['watched_steps']:,} of them watched"
    number = int(meta.get("steps", 0))
    return f"{number:,} step{'s' if number != 1 else ''}" if number else ""


def nothing_found(recording: Recording) -> str:
    """What is said where there is no finding, without its full stop."""
    if not recording.ops and not recording.meta.get("ops"):
        return "no torch operation ran, so nothing was judged"
    return "no dtype problem in what was judged" if compiled(recording) else "no dtype problem found"


def eagerly(recording: Recording, program: str = "") -> list[str]:
    """The line that says how to judge what is inside compiled code, if there was any."""
    if all(fact.id == "ran eagerly" for fact in compiled(recording)):
        return []
    how = f"dtypetrace run --compile eager {program}" if program else 'dtypetrace.trace(compile="eager")'
    return [f"Compiled code operator by operator, run eagerly: {how}"]


_WAYS = {
    "off": "not measured: leave --precision off out, or pass precision='values'",
    "no step": "no optimizer step was seen: {needs} are needed",
    "only its dtypes and roundings": "its dtypes and roundings were read, its numbers were not",
    "only one call": "the results of one call of it were computed again, in float64 and as eager rounds",
    "few steps": "{count} weights moved in too few measured steps: {command}",
}
"""Why a family was not judged, by the fact's id; an id that is not here speaks for itself."""


def not_judged_line(recording: Recording, program: str = "") -> str:
    """``not judged: updates (2 weights moved in fewer than 2 measured steps: dtypetrace run --steps 3 train.py)``;
    empty where everything was. ``program``: what to type after the command."""
    families: dict[str, list[str]] = {}
    for fact in not_judged(recording):
        command = f"dtypetrace run --steps {fact.needs} {program}" if program else f"watch {fact.needs} steps"
        way = _WAYS.get(fact.id, fact.id)
        why = way.format(count=fact.count, needs=fact.needs, command=command)
        families.setdefault(why, []).append(fact.family)
    parts = [f"{listed(names)} ({why})" for why, names in families.items()]
    return f"not judged: {listed(parts)}" if parts else ""


def plain(recording: Recording) -> dict[str, Any]:
    """Both as data for the JSON report."""
    return {"work": work(recording) | {"text": work_line(recording)}, "not_judged": to_plain(not_judged(recording))}
