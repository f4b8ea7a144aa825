"""The result of retraining adapters: the verdict on each adapter, and whether the float32 run learns.

Plain data and standard library; ``render.retraining`` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..records import State, Update
from ..rules.mechanisms import LEAST_STEPS, MECHANISMS, Mechanism, compared, mechanism, of_adapter
from ..tables.dtypes import DTYPES, bytes_of
from ..tables.english import quoted

STANDARD_ERRORS = 2.0
ROUNDINGS = 4.0
"""Two runs of one narrow computation differ by a few roundings of its dtype, and by chance; a loss that is worse by
more than this is worse."""
AS_THEY_ARE, IN_FLOAT32 = "as they are", "in float32"
"""The two runs that are compared."""
SHOWN = ("state underflow", "overshoot", "broken", "untouched", "below resolution")
"""Mechanisms that stay proven by the steps taken, even if an exception ended the run later."""


@dataclass(frozen=True, slots=True)
class AdapterInRun:
    """One adapter in one run. Shares are 0 to 1, of its elements."""

    dtype: str
    verdict: str
    """What the measured steps show: ``healthy``, or what kept it from learning (``rules.mechanisms``)."""
    facts: tuple[str, ...]
    gradient: float
    """Norm in the last step that had one; shares over all steps follow. Steps that a loss scaler skipped do not
    count."""
    zeros: float
    subnormal: float
    """Share below float16's normal range, 2**-14."""
    nonfinite: float
    moved: float
    """Share of the elements with a gradient that any step moved."""
    change: float
    """Mean change of an element in a step."""
    resolution: float
    """Mean size of the smallest change that an element can take in its dtype."""
    state: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class AdapterVerdict:
    """One adapter, in the original run (before) and in the float32 run (after)."""

    name: str
    before: AdapterInRun
    after: AdapterInRun


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One run: a number for each step in ``losses``."""

    label: str
    dtype: str
    losses: tuple[float, ...]
    skipped: int
    """Steps that the loss scaler skipped, and its scale at the end."""
    scale: float
    ended: str
    """The exception that ended it, empty where it took all steps."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, and what it did to each parameter of its adapters, by name."""

    run: TrainingRun
    adapters: Mapping[str, tuple[str, ...]]
    """The names of each adapter's parameters."""
    updates: Mapping[str, Update]
    gradients: Mapping[str, tuple[float, ...]]
    """Norm in the last step that had one; shares of zeros, of values below float16's normal range, of infinities and
    NaNs."""
    resolutions: Mapping[str, float]

    def judged(self, found: Mechanism) -> Mechanism:
        """A mechanism, except where the run ended before it could show one."""
        if not self.run.ended:
            return found
        shown = found.name in SHOWN and any(u.steps or u.broken for u in self.updates.values())
        return (
            Mechanism(found.name, (*found.facts, self.run.ended)) if shown else Mechanism("refused", (self.run.ended,))
        )


def verdicts(before: Measured, after: Measured) -> tuple[AdapterVerdict, ...]:
    """The verdict on each adapter that both runs have."""
    return tuple(
        _verdict(name, parameters, before, after)
        for name, parameters in before.adapters.items()
        if after.adapters.get(name) == parameters
    )


def _verdict(name: str, parameters: Sequence[str], before: Measured, after: Measured) -> AdapterVerdict:
    pairs = [(before.updates[n], after.updates[n]) for n in parameters]
    found = before.judged(_of_matrices(parameters, [(b, compared(b, a)) for b, a in pairs]))
    cured = after.judged(_of_matrices(parameters, [(a, mechanism(a)) for _, a in pairs]))
    return AdapterVerdict(name, _in_run(parameters, before, found), _in_run(parameters, after, cured))


def _of_matrices(parameters: Sequence[str], judged: Sequence[tuple[Update, Mechanism]]) -> Mechanism:
    """What is wrong with an adapter, with the name of the matrix that shows it: ``lora_A: its gradient was zero``."""
    found = of_adapter(judged)
    name = next((n for n, (_, m) in zip(parameters, judged) if m is found), "")
    parts = [n.split(".") for n in parameters]
    own = [p for p, *others in zip(name.split("."), *parts) if len(set(others)) > 1]
    if len(parameters) < 2 or not own or not found.facts:
        return found
    return Mechanism(found.name, (f"{own[0]}: {found.facts[0]}", *found.facts[1:]))


def _in_run(parameters: Sequence[str], measured: Measured, found: Mechanism) -> AdapterInRun:
    """One adapter in one run; its matrices are weighted by their sizes."""
    updates = [measured.updates[n] for n in parameters]
    sizes = [math.prod(u.shape) for u in updates]
    rows = [(measured.gradients[n], s) for n, s in zip(parameters, sizes) if n in measured.gradients]
    shares = [sum(row[i] * s for row, s in rows) / max(sum(s for _, s in rows), 1) for i in (1, 2, 3)]
    total = max(sum(sizes), 1)
    return AdapterInRun(
        dtype=min(updates, key=lambda u: bytes_of(u.dtype)).dtype,
        verdict=found.name,
        facts=found.facts,
        gradient=sum(row[0] ** 2 for row, _ in rows) ** 0.5,
        zeros=shares[0],
        subnormal=shares[1],
        nonfinite=shares[2],
        moved=sum(u.moved for u in updates) / max(sum(u.reached for u in updates), 1),
        change=math.nan
        if any(u.broken for u in updates)
        else sum(u.change * s for u, s in zip(updates, sizes)) / total,
        resolution=sum(measured.resolutions[n] * s for n, s in zip(parameters, sizes)) / total,
        state=tuple(s for u in updates for s in u.state),
    )


@dataclass(frozen=True, slots=True)
class Retraining:
    """The result of ``retrain_lora``: whether the adapters learn, as they are and in float32, and by which mechanism
    they fail to."""

    adapters: tuple[AdapterVerdict, ...]
    before: TrainingRun
    after: TrainingRun
    untrained: tuple[float, ...]
    """The loss of the same steps with the weights untrained, in the float32 run's precision."""
    optimizer: str
    computes: str
    """The dtype that autocast computed in, in the float32 run; empty where it was off."""
    steps: int

    @property
    def confirmed(self) -> bool:
        """Whether the adapters were measured to learn with their weights in float32 (``after``). It says nothing about
        the adapters as they are (``before``); False means that these steps did not show it."""
        return not self.objections

    def by_verdict(self, run: str) -> list[tuple[str, list[AdapterVerdict]]]:
        """The adapters by their verdict in a run (``before`` or ``after``), the worst first."""
        groups: dict[str, list[AdapterVerdict]] = {}
        for verdict in self.adapters:
            groups.setdefault(getattr(verdict, run).verdict, []).append(verdict)
        return sorted(groups.items(), key=lambda group: MECHANISMS.index(group[0]))

    @property
    def objections(self) -> tuple[str, ...]:
        """What keeps the float32 run from being confirmed, one sentence each."""
        after = self.after
        if after.ended:
            return (f"the run with the adapters in float32 ended in {after.ended}",)
        found = [
            f"in float32, {some_of(members, self.adapters)}: {with_facts(name, members[0].after.facts)}"
            for name, members in self.by_verdict("after")
            if name != "healthy"
        ]
        taken = len(after.losses) - after.skipped
        if taken < LEAST_STEPS and not found:
            found.append(f"only {taken} of {self.steps} steps were taken, the loss scaler left the others out")
        if not found and (broken := [v for v in self.adapters if v.after.nonfinite > 0]):
            found.append(f"in float32, {some_of(broken, self.adapters)}: some gradients were infinite or NaN")
        if not all(map(math.isfinite, after.losses)):
            found.append("in float32 the loss became infinite or NaN")
        elif len(self.untrained) < len(after.losses):
            found.append("the loss could not be compared: the one with untrained weights could not be computed")
        elif not self._no_worse():
            found.append(self.losses_compared + ": it got worse")
        return tuple(found)

    def _later(self, losses: tuple[float, ...]) -> list[float]:
        return list(losses[self.steps // 2 :])

    def _no_worse(self) -> bool:
        """Whether the loss is not higher than with untrained weights, by more than chance and rounding explain."""
        pairs = list(zip(self._later(self.after.losses), self._later(self.untrained)))
        above = [trained - untrained for trained, untrained in pairs]
        average = mean(above)
        variance = math.fsum((a - average) ** 2 for a in above) / max(len(above) - 1, 1)
        rounding = ROUNDINGS * DTYPES.get(self.computes, DTYPES["float32"]).rounding * max(abs(u) for _, u in pairs)
        return average <= STANDARD_ERRORS * math.sqrt(variance / len(above)) + rounding

    @property
    def losses_compared(self) -> str:
        """The mean losses of both runs over the later half of the steps, in words."""
        after, untrained = (mean(self._later(losses)) for losses in (self.after.losses, self.untrained))
        less = f"{abs(after - untrained):.1e} {'higher' if after > untrained else 'lower'}"
        compared = f"{less} than with untrained weights on the same batches"
        return f"over the later half of {self.steps} steps the loss is {after:.5g}, {compared}"


def some_of(members: Sequence[AdapterVerdict], everyone: Sequence[AdapterVerdict]) -> str:
    """Which adapters: one by its name, several by their number and the first one's name."""
    if len(members) == len(everyone):
        if len(members) == 1:
            return f"the adapter {quoted(members[0].name)}"
        return f"{every(members)} adapters (such as {quoted(members[0].name)})"
    return f"{len(members)} of {len(everyone)} adapters (such as {quoted(members[0].name)})"


def every(members: Sequence[AdapterVerdict]) -> str:
    """``both``, or ``all`` with the number."""
    return "both" if len(members) == 2 else f"all {len(members)}"


def with_facts(name: str, facts: tuple[str, ...]) -> str:
    return f"{name} ({'; '.join(facts)})" if facts else name


def mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else math.nan
