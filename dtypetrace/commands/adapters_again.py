"""``dtypetrace fix`` for adapters that do not learn: runs the program again with them in float32, and compares both
runs.

Two more runs are needed. In one, the float32 adapters are trained. In the other, each step on them is undone; the
losses of the trained run must not be above its losses. ``lora.verdict`` judges, as in ``retrain_lora``."""

from __future__ import annotations

from .. import graph
from ..autofix import Outcome, Repair
from ..lora.verdict import IN_FLOAT32, UNTRAINED, Measured, Retraining, verdicts
from ..records import Recording
from ..render import wording
from ..source.patch import Patch
from ..tables.dtypes import HALF


class NotComparable(RuntimeError):
    """The runs cannot be compared. The text says why."""


def before(repair: Repair, found: Outcome, proven: bool) -> tuple[Outcome, Patch]:
    """The run with the adapters as the program has them, and the patch to use in the next runs: the proven one, else
    none. If the patch itself puts adapters into float32, it is the run without the patch."""
    patched = repair.patched if proven else None
    if patched is not None and patched.adapters is not None and narrow(patched.adapters):
        return patched, repair.patch
    return found, repair.patch if proven else Patch()


def narrow(measured: Measured) -> list[str]:
    """The adapters with a weight in float16 or bfloat16."""
    return [
        name
        for name, parameters in measured.adapters.items()
        if any(measured.updates[n].dtype in HALF for n in parameters)
    ]


def failing(measured: Measured | None) -> list[str]:
    """The narrow adapters that do not learn; none where no step was taken and nothing was refused."""
    if measured is None or not (measured.run.losses or measured.run.ended):
        return []
    found = measured.mechanisms
    return [name for name in narrow(measured) if found[name].name != "healthy"]


def seen_to_learn(measured: Measured | None) -> bool:
    """Whether a run has adapters, and all of them are seen to learn."""
    return measured is not None and all(found.name == "healthy" for found in measured.mechanisms.values())


def again(repair: Repair, patch: Patch, measured: Measured) -> Retraining:
    """Runs the program with its adapters in float32, trained and untrained. Raises NotComparable, RunFailed,
    OutOfTime."""
    after = repair.start("with its adapters in float32", patch=patch, adapters=IN_FLOAT32).adapters
    untrained = repair.start("the same with each step on them undone", patch=patch, adapters=UNTRAINED).adapters
    if after is None or untrained is None:
        raise NotComparable("no optimizer was given an adapter in the run with float32")
    if not after.run.losses and not after.run.ended:
        raise NotComparable("no optimizer step was taken in the run with float32")
    compared = verdicts(measured, after)
    if not compared:
        raise NotComparable("the run with float32 has other adapters")
    used = next((u.optimizer for u in (*after.updates.values(), *measured.updates.values()) if u.optimizer), "")
    return Retraining(
        adapters=compared,
        before=measured.run,
        after=after.run,
        untrained=untrained.run.losses,
        optimizer=used,
        computes=after.computes,
        steps=len(after.run.losses) or len(measured.run.losses),
    )


def advice(retraining: Retraining) -> str:
    """What else to change where float32 alone is not enough; empty where nothing is known."""
    quiet = any(v.after.verdict in ("zero gradient", "gradient underflow") for v in retraining.adapters)
    if retraining.computes == "float16" and not retraining.after.scale and quiet:
        return (
            "scale the loss (torch.amp.GradScaler): gradients that are computed in float16 underflow "
            "where an adapter is still near zero; or take more steps"
        )
    return ""


def remedy(recording: Recording, measured: Measured, names: list[str]) -> str:
    """What to change in the source, with the place where the adapters of these names got their dtype."""
    first = next(u for name in names for n in measured.adapters[name] if (u := measured.updates[n]).dtype in HALF)
    place = graph.origin(recording, first.event, first.dtype, first.name).place if first.event >= 0 else graph.NOWHERE
    at = f" ({wording.at(place)})" if place.stack else ""
    return f"keep the adapters in float32{at}; under autocast they still compute in {first.dtype}"
