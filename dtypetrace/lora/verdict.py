"""What retraining adapters showed: the verdict on each, whether the float32 run learns, and the views of that.

Plain data and standard library; the picture comes from ``render.curves``.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape

from ..records import Recording, State, Update
from ..render.curves import curves, panels
from ..rules.training import LEAST_STEPS, MECHANISMS, Mechanism, compared, mechanism, of_adapter
from ..tables.dtypes import DTYPES, bytes_of

STANDARD_ERRORS = 2.0
ROUNDINGS = 4.0
"""Two runs of one narrow computation differ by a few roundings of its dtype and by chance; a loss that is worse by more is worse."""
AS_THEY_ARE, IN_FLOAT32, UNTRAINED = "as they are", "in float32", "untrained"
"""The three runs that are compared: with the adapters as they are, with them in float32, and in float32 with no step kept."""
MOST_ROWS = 40
NUMBERS = ("gradient norm", "exact zeros", "fp16 subnormals", "moved", "update", "resolution")
SHOWN = ("state underflow", "overshoot", "broken", "untouched", "below resolution")
"""Mechanisms that steps showed stand, though an exception ended the run later."""
_WIDTH = 108  # the table's


@dataclass(frozen=True, slots=True)
class Side:
    """One adapter in one run. Shares are 0 to 1, of its elements."""

    dtype: str
    verdict: str
    """What the steps measured say: ``healthy``, or what kept it from learning (``_training.MECHANISMS``)."""
    facts: tuple[str, ...]
    gradient: float
    """Norm in the last step that had one; shares over all steps follow. Steps that a loss scaler left out do not count."""
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
class Verdict:
    """One adapter, in the run as it was (before) and in the one in float32 (after)."""

    name: str
    before: Side
    after: Side


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a number for each step in ``losses`` and ``changes`` (mean over the adapters' elements)."""

    label: str
    dtype: str
    losses: tuple[float, ...]
    changes: tuple[float, ...]
    resolution: float
    """Median over the adapters' matrices of the smallest change that their elements can take."""
    skipped: int
    """Steps that the loss scaler left out, and its scale at the end."""
    scale: float
    ended: str
    """The exception that ended it, empty where it took all its steps."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, and what it did to each parameter of its adapters, by name."""

    run: Run
    adapters: Mapping[str, tuple[str, ...]]
    """The names of each adapter's parameters."""
    updates: Mapping[str, Update]
    gradients: Mapping[str, tuple[float, ...]]
    """Norm in the last step that had one; shares of zeros, of what lies below float16's normal range, of infinities and NaNs."""
    resolutions: Mapping[str, float]
    computes: str = ""
    """The dtype in which autocast let the adapters compute, where it did."""

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """What the run by itself says about each adapter."""
        return {
            name: self.judged(of_adapter((u, mechanism(u)) for n in parameters if (u := self.updates[n])))
            for name, parameters in self.adapters.items()
        }

    def judged(self, found: Mechanism) -> Mechanism:
        """A mechanism, unless the run ended before it could show one."""
        if not self.run.ended:
            return found
        shown = found.name in SHOWN and any(u.steps or u.broken for u in self.updates.values())
        return (
            Mechanism(found.name, (*found.facts, self.run.ended)) if shown else Mechanism("refused", (self.run.ended,))
        )


def verdicts(before: Measured, after: Measured) -> tuple[Verdict, ...]:
    """The verdict on each adapter that both runs have."""
    return tuple(
        _verdict(name, parameters, before, after)
        for name, parameters in before.adapters.items()
        if after.adapters.get(name) == parameters
    )


def _verdict(name: str, parameters: Sequence[str], before: Measured, after: Measured) -> Verdict:
    pairs = [(before.updates[n], after.updates[n]) for n in parameters]
    found = before.judged(of_adapter((b, compared(b, a)) for b, a in pairs))
    cured = after.judged(of_adapter((a, mechanism(a)) for _, a in pairs))
    return Verdict(name, _side(parameters, before, found), _side(parameters, after, cured))


def _side(parameters: Sequence[str], measured: Measured, found: Mechanism) -> Side:
    """One adapter in one run, its matrices taken together by their sizes."""
    updates = [measured.updates[n] for n in parameters]
    sizes = [math.prod(u.shape) for u in updates]
    rows = [(measured.gradients[n], s) for n, s in zip(parameters, sizes) if n in measured.gradients]
    shares = [sum(row[i] * s for row, s in rows) / max(sum(s for _, s in rows), 1) for i in (1, 2, 3)]
    total = max(sum(sizes), 1)
    return Side(
        dtype=min(updates, key=lambda u: bytes_of(u.dtype)).dtype,
        verdict=found.name,
        facts=found.facts,
        gradient=sum(row[0] ** 2 for row, _ in rows) ** 0.5,
        zeros=shares[0],
        subnormal=shares[1],
        nonfinite=shares[2],
        moved=sum(u.moved for u in updates) / max(sum(u.reached for u in updates), 1),
        change=sum(u.change * s for u, s in zip(updates, sizes)) / total,
        resolution=sum(measured.resolutions[n] * s for n, s in zip(parameters, sizes)) / total,
        state=tuple(s for u in updates for s in u.state),
    )


@dataclass(frozen=True, slots=True)
class Retraining:
    """The result of ``retrain_lora``: do the adapters learn, as they are and in float32, and by which mechanism do they not?"""

    adapters: tuple[Verdict, ...]
    before: Run
    after: Run
    untrained: tuple[float, ...]
    """The loss of the same steps with the weights untrained, in the float32 run's precision."""
    optimizer: str
    computes: str
    """The dtype that autocast computed in, in the float32 run; empty where it was off."""
    steps: int

    @property
    def confirmed(self) -> bool:
        """Whether the float32 run was measured to learn; the thresholds stand in ``retrain_lora``."""
        return not self._wrong()

    @property
    def why(self) -> str:
        """The facts behind ``confirmed``, a sentence a line."""
        lines = []
        if wrong := self._wrong():
            lines += wrong
        else:
            moved = min(v.after.moved for v in self.adapters)
            most = "all" if moved == 1 else f"at least {moved:.0%}"
            who = "the one adapter learns" if len(self.adapters) == 1 else f"all {len(self.adapters)} adapters learn"
            lines.append(
                f"with the adapters in float32 {who}: {most} of the numbers with a gradient moved, each gradient finite"
            )
            lines.append(self._losses())
        for name, members in self._by("before"):
            if name != "healthy":
                lines.append(
                    f"as they are, in {members[0].before.dtype}, {_some(members, self.adapters)}: {_told(name, members[0].before.facts)}"
                )
        if all(v.before.verdict == "healthy" for v in self.adapters):
            lines.append(f"as they are, in {self.before.dtype}, the adapters move as well")
        return "\n".join(lines)

    def _by(self, run: str) -> list[tuple[str, list[Verdict]]]:
        """The adapters by their verdict in a run, the gravest first."""
        groups: dict[str, list[Verdict]] = {}
        for verdict in self.adapters:
            groups.setdefault(getattr(verdict, run).verdict, []).append(verdict)
        return sorted(groups.items(), key=lambda group: MECHANISMS.index(group[0]))

    def _wrong(self) -> list[str]:
        """What keeps the float32 run from being confirmed."""
        after = self.after
        if after.ended:
            return [f"the run with the adapters in float32 ended in {after.ended}"]
        found = [
            f"in float32, {_some(members, self.adapters)}: {_told(name, members[0].after.facts)}"
            for name, members in self._by("after")
            if name != "healthy"
        ]
        taken = len(after.losses) - after.skipped
        if taken < LEAST_STEPS and not found:
            found.append(f"only {taken} of {self.steps} steps were taken, the loss scaler left the others out")
        if not found and (broken := [v for v in self.adapters if v.after.nonfinite > 0]):
            found.append(f"in float32, {_some(broken, self.adapters)}: some gradients were infinite or NaN")
        if not all(map(math.isfinite, after.losses)):
            found.append("in float32 the loss became infinite or NaN")
        elif len(self.untrained) < len(after.losses):
            found.append("the loss with untrained weights, to compare with, could not be computed")
        elif not self._no_worse():
            found.append(self._losses() + ": it got worse")
        return found

    def _later(self, losses: tuple[float, ...]) -> list[float]:
        return list(losses[self.steps // 2 :])

    def _no_worse(self) -> bool:
        pairs = list(zip(self._later(self.after.losses), self._later(self.untrained)))
        worse = [a - u for a, u in pairs]
        mean = math.fsum(worse) / len(worse)
        spread = math.sqrt(math.fsum((w - mean) ** 2 for w in worse) / max(len(worse) - 1, 1) / len(worse))
        rounding = ROUNDINGS * DTYPES.get(self.computes, DTYPES["float32"]).rounding * max(abs(u) for _, u in pairs)
        return mean <= STANDARD_ERRORS * spread + rounding

    def _losses(self) -> str:
        after, untrained = (_mean(self._later(losses)) for losses in (self.after.losses, self.untrained))
        compared = f"{after - untrained:+.1e} against untrained weights on the same batches"
        return f"over the later half of {self.steps} steps the loss is {after:.5g}, {compared}"

    # ---------------------------------------------------------------- views

    def to_dataframe(self):
        """Two rows for each adapter, ``before`` and ``after``, as a pandas DataFrame."""
        import pandas

        rows = [
            {
                "adapter": v.name,
                "run": run,
                **asdict(side),
                "facts": "; ".join(side.facts),
                "state": "; ".join(_state(s) for s in side.state),
            }
            for v in self.adapters
            for run, side in (("before", v.before), ("after", v.after))
        ]
        return pandas.DataFrame(rows)

    def svg(self) -> str:
        """The picture of both runs: how far a step moves the weights against their dtype's resolution, and the losses."""
        return curves(self)

    def panels(self) -> tuple[str, str]:
        """The picture's two halves, updates and losses, each by itself."""
        return panels(self)

    def __repr__(self) -> str:
        head = "confirmed: in float32 the adapters learn" if self.confirmed else "not confirmed"
        lines = [f"LoRA retraining, {self.over}: {head}"]
        for line in self.why.splitlines():
            lines += textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="    ")
        header = ("gradient", "zeros", "subnormal", "moved", "update", "resolution")
        lines += ["", f"{'':42}" + "".join(f"{h:>11}" for h in header)]
        for members in self._pairs():
            lines.append(members[0].name + (f", and {len(members) - 1} more like it" if len(members) > 1 else ""))
            for label, sides in (
                ("as they are", [v.before for v in members]),
                ("in float32", [v.after for v in members]),
            ):
                numbers = "".join(f"{text:>11}" for text in _numbers(sides))
                lines.append(f"  {label:<12}{sides[0].dtype:<10}{sides[0].verdict:<18}{numbers}")
        return "\n".join(lines)

    def report(self, path: str | os.PathLike) -> None:
        """Writes verdict, picture and table as one HTML file that opens anywhere and loads nothing."""
        from .. import report

        report.write_html(path, Recording(), (), retraining=self)

    @property
    def over(self) -> str:
        """How many adapters took which steps, in a few words."""
        return f"{len(self.adapters)} adapter{'s' if len(self.adapters) != 1 else ''}, {self.steps} steps of {self.optimizer or 'no optimizer'}"

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        return (
            "Confirmed: in float32 the adapters learn"
            if self.confirmed
            else "Not confirmed: in float32 the adapters were not seen to learn"
        )

    def rows(self) -> list[tuple[str, int, tuple[tuple[str, str, str, tuple[str, ...]], ...]]]:
        """What the tables show: an adapter's name, how many more are like it, and for each run its label, dtype, verdict and
        numbers (``NUMBERS``)."""
        found = []
        for members in self._pairs()[:MOST_ROWS]:
            runs = ((AS_THEY_ARE, [v.before for v in members]), (IN_FLOAT32, [v.after for v in members]))
            found.append(
                (
                    members[0].name,
                    len(members) - 1,
                    tuple((label, s[0].dtype, s[0].verdict, _numbers(s)) for label, s in runs),
                )
            )
        return found

    def _repr_html_(self) -> str:
        why = "".join(f"<li>{escape(line)}</li>" for line in self.why.splitlines())
        rows = []
        for name, like, runs in self.rows():
            more = f"<br><small>and {like} more like it</small>" if like else ""
            first = f'<td rowspan="2" style="text-align:left">{escape(name)}{more}</td>'
            for label, dtype, verdict, numbers in runs:
                rows.append(
                    f"<tr>{first}<td>{label}</td><td>{dtype}</td><td>{escape(verdict)}</td>{''.join(f'<td>{n}</td>' for n in numbers)}</tr>"
                )
                first = ""
        header = "".join(f"<th>{name}</th>" for name in ("adapter", "run", "dtype", "verdict", *NUMBERS))
        return (
            f'<div class="dtypetrace"><b>{self.headline}</b> ({escape(self.over)})<ul>{why}</ul>'
            f"{self.svg()}<table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )

    def _pairs(self) -> list[list[Verdict]]:
        """Adapters to which the same happened in both runs."""
        groups: dict[tuple, list[Verdict]] = {}
        for v in self.adapters:
            groups.setdefault((v.before.verdict, v.before.dtype, v.after.verdict), []).append(v)
        return list(groups.values())


def _numbers(sides: list[Side]) -> tuple[str, ...]:
    """Means over adapters: gradient norm, zeros, subnormals, moved, update, resolution."""
    shares = [f"{_mean([getattr(s, name) for s in sides]):.0%}" for name in ("zeros", "subnormal", "moved")]
    sizes = [f"{_mean([getattr(s, name) for s in sides]):.1e}" for name in ("gradient", "change", "resolution")]
    return (sizes[0], *shares, *sizes[1:])


def _told(name: str, facts: tuple[str, ...]) -> str:
    return f"{name} ({'; '.join(facts)})" if facts else name


def _state(state: State) -> str:
    return f"{state.name} {state.dtype}: {state.zeros:.0%} zeros" + ("" if state.finite else ", not finite")


def _some(members: list[Verdict], everyone: tuple[Verdict, ...]) -> str:
    if len(members) == len(everyone):
        return (
            f"the adapter {members[0].name}"
            if len(members) == 1
            else f"all {len(members)} adapters, {members[0].name} for one"
        )
    return f"{len(members)} of {len(everyone)} adapters, {members[0].name} for one"


def _mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else math.nan
