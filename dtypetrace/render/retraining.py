"""A retraining of adapters: the verdict in words, as text and as a frame."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..lora.verdict import (
    AS_THEY_ARE,
    IN_FLOAT32,
    AdapterInRun,
    AdapterVerdict,
    Retraining,
    every,
    mean,
    some_of,
    with_facts,
)
from ..records import State
from ..terminal import seen

_WIDTH = 114
"""Columns of the text: those of its table."""


def headline(r: Retraining) -> str:
    """The verdict in a few words, on every surface. It says "confirmed" only where the loss curves show it, too."""
    if learning_is_seen(r):
        return "Confirmed: in float32 the adapters learn"
    if r.confirmed:
        other = "the adapters as they are" if beside_the_first_run(r) else "untrained adapters"
        return (
            f"In float32 the adapters' weights move; over {r.steps} steps the loss curve looks the same as with {other}"
        )
    healthy = sum(v.after.verdict == "healthy" for v in r.adapters)
    if 0 < healthy < len(r.adapters):
        return f"Not confirmed: in float32 only {healthy} of {len(r.adapters)} adapters were seen to learn"
    return "Not confirmed: in float32 the adapters were not seen to learn"


def over(r: Retraining) -> str:
    """How many adapters took which steps, in a few words."""
    plural = "s" if len(r.adapters) != 1 else ""
    return f"{len(r.adapters)} adapter{plural}, {r.steps} steps of {r.optimizer or 'no optimizer'}"


def why(r: Retraining) -> list[str]:
    """The facts behind the verdict, one sentence each."""
    sentences = list(r.objections)
    if not sentences:
        moved = min(v.after.moved for v in r.adapters)
        most = "all" if moved == 1 else f"at least {moved:.0%}"
        does = ("learns", "learn") if learning_is_seen(r) else ("is updated", "are updated")
        who = f"the one adapter {does[0]}" if len(r.adapters) == 1 else f"{every(r.adapters)} adapters {does[1]}"
        sentences += [
            f"with the adapters in float32 {who}: {most} of the numbers whose gradient is not zero moved, "
            "and each gradient is finite",
            r.losses_compared,
        ]
        if not learning_is_seen(r):
            smallest, largest = span(r)
            sentences[-1] += (
                "; this is too little to see in a curve: "
                f"the smallest loss of these runs is {smallest:.5g}, the largest {largest:.5g}"
            )
    for name, members in r.by_verdict("before"):
        if name != "healthy":
            first = members[0].before
            who = some_of(members, r.adapters)
            sentences.append(f"as they are, in {first.dtype}, {who}: {with_facts(name, first.facts)}")
    if all(v.before.verdict == "healthy" for v in r.adapters):
        sentences.append(f"as they are, in {r.before.dtype}, the adapters move as well")
    return sentences


_SEEN = 1 / 75
"""Of the range of all losses: what is closer looks the same in a picture of them."""


def coincide(result: Retraining) -> bool:
    """Whether nobody could tell the losses in float32 from those that they are compared with in a picture."""
    other = result.before.losses if beside_the_first_run(result) else result.untrained
    apart = [abs(a - b) for a, b in zip(result.after.losses, other) if math.isfinite(a) and math.isfinite(b)]
    low, high = span(result)
    return bool(apart) and max(apart) <= _SEEN * (high - low)


def beside_the_first_run(result: Retraining) -> bool:
    """Whether the float32 run is compared with that of the adapters as they are; where those learn, too, or that run's
    losses are not finite, with untrained ones."""
    losses = result.before.losses
    if result.untrained and result.adapters and all(v.before.verdict == "healthy" for v in result.adapters):
        return False
    return len(losses) == len(result.after.losses) and all(map(math.isfinite, losses))


def span(result: Retraining) -> tuple[float, float]:
    """The lowest and the highest of all losses that were measured."""
    losses = (*result.before.losses, *result.after.losses, *result.untrained)
    finite = [loss for loss in losses if math.isfinite(loss)]
    return min(finite, default=0.0), max(finite, default=0.0)


def learning_is_seen(result: Retraining) -> bool:
    """Whether the float32 run was measured to learn, and its losses show that: the one decision for "confirmed" in all
    views."""
    return result.confirmed and not coincide(result)


# ---------------------------------------------------------------- the table


def _alike(r: Retraining) -> list[list[AdapterVerdict]]:
    """Groups of adapters with the same result in both runs."""
    groups: dict[tuple[str, str, str], list[AdapterVerdict]] = {}
    for v in r.adapters:
        groups.setdefault((v.before.verdict, v.before.dtype, v.after.verdict), []).append(v)
    return list(groups.values())


def _numbers(sides: Sequence[AdapterInRun]) -> tuple[str, ...]:
    """Means over adapters: gradient norm, zeros, subnormals, moved, update, resolution."""
    if all(s.verdict == "refused" for s in sides):
        return ("-",) * 6  # the run ended before anything was measured
    shares = [f"{mean([getattr(s, name) for s in sides]):.0%}" for name in ("zeros", "subnormal", "moved")]
    sizes = [f"{mean([getattr(s, name) for s in sides]):.1e}" for name in ("gradient", "change", "resolution")]
    return (sizes[0], *shares, *sizes[1:])


# ---------------------------------------------------------------- views


_LEGEND = (
    "A row's figures are those of all weights of an adapter; its verdict is that of the worst one.",
    "gradient: the norm over all numbers of the adapter. update, resolution: of one number, on average.",
    "zeros: share of the gradient that is exactly zero; subnormal: share below 6e-05, where float16 has fewer digits.",
    "moved: of the numbers whose gradient is not zero, the share that changed.",
    "Every step is measured up to the eighth, then every second one, and from the 32nd on every sixteenth.",
)


def text(r: Retraining) -> str:
    """Verdict, facts and table as text."""
    head = headline(r)
    lines = [f"LoRA retraining, {over(r)}: {head[0].lower()}{head[1:]}"]
    for sentence in why(r):
        lines += textwrap.wrap(sentence, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    header = ("gradient", "zeros", "subnormal", "moved", "update", "resolution")
    lines += ["", f"  {'run':<12}{'dtype':<10}{'verdict':<18}" + "".join(f"{h:>12}" for h in header)]
    for members in _alike(r):
        more = f", and {len(members) - 1} more like it" if len(members) > 1 else ""
        lines.append(members[0].name + more)
        for label, sides in ((AS_THEY_ARE, [v.before for v in members]), (IN_FLOAT32, [v.after for v in members])):
            numbers = "".join(f"{number:>12}" for number in _numbers(sides))
            lines.append(f"  {label:<12}{sides[0].dtype:<10}{sides[0].verdict:<18}{numbers}")
    lines += ["", *_LEGEND]
    return "\n".join(map(seen, lines))


def frame(r: Retraining) -> Any:
    """Two rows for each adapter, ``before`` and ``after``, as a pandas DataFrame."""
    import pandas

    return pandas.DataFrame(
        [
            {
                "adapter": v.name,
                "run": run,
                **asdict(side),
                "facts": "; ".join(side.facts),
                "state": "; ".join(map(_state, side.state)),
            }
            for v in r.adapters
            for run, side in (("before", v.before), ("after", v.after))
        ]
    )


def _state(state: State) -> str:
    return f"{state.name} {state.dtype}: {state.zeros:.0%} zeros" + ("" if state.finite else ", not finite")
