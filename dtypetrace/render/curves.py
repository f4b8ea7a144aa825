"""The drawing of a retraining, as SVG text: how far each step moved the weights, compared with what their dtype can
represent, and the losses.

It uses plain attributes, so it works in a notebook and by itself, and the text takes the page's colour. Each line has
its dtype's family as its class, so a page can use the colours that the dtypes have elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from .listings import family

if TYPE_CHECKING:
    from ..lora.verdict import Retraining

COLOURS = {"float16": "#9b3d7a", "bfloat16": "#b84a00", "float32": "#2f7fc1", "": "#7d8590"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 300, 150, 68, 30, 34, 84
_MARKS = 5
"""Labels on an axis: more would touch each other at this height."""
_DASHED, _DOTTED = "6 3", "2 3"
_LINE_WIDTH = 2
_FLOOR = 1e-12
"""For the logarithmic axis: a change of zero is drawn below this."""


def curves(result: Retraining) -> str:
    """Two panels side by side, 820 by 250 units."""
    width = _LEFT + _WIDTH
    return _drawing(result, 2 * width + _GAP, _updates(result, _LEFT), _losses(result, width + _GAP + _LEFT // 2))


def panels(result: Retraining) -> tuple[str, ...]:
    """The same as pictures, each 378 by 250 units, for a page that arranges them itself; the third one is the
    difference of the losses, which the second one is often too coarse to show."""
    drawn = (_updates(result, _LEFT), _losses(result, _LEFT), _differences(result, _LEFT))
    return tuple(_drawing(result, _LEFT + _WIDTH + 10, part) for part in drawn if part)


def coincide(result: Retraining) -> bool:
    """Whether the eye cannot tell the loss curve in float32 from the one that it is compared with: everywhere they are
    closer than a line is wide."""
    other = result.before.losses if beside_the_first_run(result) else result.untrained
    apart = [abs(a - b) for a, b in zip(result.after.losses, other) if math.isfinite(a) and math.isfinite(b)]
    low, high = span(result)
    return bool(apart) and max(apart) * _HEIGHT <= _LINE_WIDTH * (high - low)


def beside_the_first_run(result: Retraining) -> bool:
    """Whether the float32 run is compared with that of the adapters as they are; where that run's losses are not
    finite, with untrained ones."""
    losses = result.before.losses
    return len(losses) == len(result.after.losses) and all(map(math.isfinite, losses))


def span(result: Retraining) -> tuple[float, float]:
    """The lowest and the highest of all losses that were measured."""
    losses = (*result.before.losses, *result.after.losses, *result.untrained)
    finite = [loss for loss in losses if math.isfinite(loss)]
    return min(finite, default=0.0), max(finite, default=0.0)


def learning_is_seen(result: Retraining) -> bool:
    """Whether the float32 run was measured to learn, and its loss curve shows that: the one decision for "confirmed"
    in all views."""
    return result.confirmed and not coincide(result)


def _drawing(result: Retraining, width: int, *parts: str) -> str:
    height = _TOP + _HEIGHT + _BOTTOM + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curves" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="currentColor" style="max-width:100%;height:auto">'
        f"<title>{escape(_title(result))}</title>{''.join(parts)}</svg>"
    )


@dataclass(frozen=True)
class Series:
    """One curve: its name, a number for each step, the dtype whose colour it has, and dashes if that colour is already
    used."""

    label: str
    numbers: tuple[float, ...]
    dtype: str = ""
    dashes: str = ""


@dataclass(frozen=True)
class Level:
    """A horizontal line with a name."""

    label: str
    value: float
    dtype: str


@dataclass(frozen=True)
class Scale:
    """The vertical axis: values or their powers of ten, from the lowest to the highest."""

    low: float
    high: float
    logarithmic: bool

    def y(self, value: float) -> float:
        if self.logarithmic:
            value = max(math.log10(value), self.low) if value > 0 else self.low
        return self.y_of(value)

    def y_of(self, position: float) -> float:
        return _TOP + _HEIGHT * (1 - (position - self.low) / (self.high - self.low))

    def marks(self) -> list[tuple[float, str]]:
        """The labels of the axis and where they are."""
        if self.logarithmic:
            low, high = int(self.low), int(self.high)
            every = max(1, -(-(high - low) // _MARKS))
            return [(low, "0"), *((n, f"1e{n}") for n in range(high, low, -every))]
        apart = (self.high - self.low) / (_MARKS - 1)
        # enough digits that neighbouring labels differ
        digits = max(4, 1 - math.floor(math.log10(apart / max(abs(self.low), abs(self.high)))))
        return [(at, f"{at:.{digits}g}") for at in (self.low + apart * n for n in range(_MARKS))]


def _scale(values: Sequence[float], *, logarithmic: bool) -> Scale:
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not logarithmic)]
    if logarithmic:
        low, high = (max(v, _FLOOR) for v in (min(finite, default=_FLOOR), max(finite, default=1.0)))
        return Scale(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)), True)
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    return Scale(low, high, False)


def _updates(result: Retraining, x: int) -> str:
    before, after = result.before, result.after
    series = [
        Series(f"as they are, {before.dtype}", before.changes, before.dtype),
        Series("in float32", after.changes, "float32", _DASHED if before.dtype == "float32" else ""),
    ]
    half = "half the spacing of"
    levels = {run.dtype: Level(f"{half} {run.dtype}", run.resolution, run.dtype) for run in (before, after)}
    title = "mean change of a weight in a step"
    return _panel(x, title, series, list(levels.values()), result.steps, logarithmic=True)


def _losses(result: Retraining, x: int) -> str:
    before, after = result.before, result.after
    series = [
        Series("untrained", result.untrained, "", _DOTTED),
        Series(f"as they are, {before.dtype}", before.losses, before.dtype),
        Series("in float32", after.losses, "float32", _DASHED if before.dtype == "float32" else ""),
    ]
    return _panel(x, "loss", series, [], result.steps, logarithmic=False)


def _differences(result: Retraining, x: int) -> str:
    """The loss in float32 minus that of the adapters as they are, and minus that of untrained weights."""
    after = result.after.losses

    def minus(losses: Sequence[float]) -> tuple[float, ...]:
        return tuple(a - b for a, b in zip(after, losses))

    series = [
        Series("minus untrained", minus(result.untrained), "", _DOTTED),
        Series(f"minus {result.before.dtype}", minus(result.before.losses), "float32"),
    ]
    if not any(math.isfinite(v) for one in series for v in one.numbers):
        return ""
    zero = [Level("no difference", 0.0, "")]
    title = "float32's loss minus the other (below 0: better)"
    return _panel(x, title, series, zero, result.steps, logarithmic=False)


def _inked(dtype: str, what: str = "stroke") -> str:
    return f'class="{family(dtype) or "none"}" color="{COLOURS.get(dtype, COLOURS[""])}" {what}="currentColor"'


def _title(result: Retraining) -> str:
    moves = "moves its weights" if result.confirmed else "is not confirmed to learn"
    run = "learns" if learning_is_seen(result) else moves
    return f"Update sizes and losses of both runs, {result.before.dtype} and float32; the float32 run {run}"


# ---------------------------------------------------------------- one panel


def _panel(
    x: int, title: str, series: Sequence[Series], levels: Sequence[Level], steps: int, *, logarithmic: bool
) -> str:
    scale = _scale([v for s in series for v in s.numbers] + [v.value for v in levels], logarithmic=logarithmic)
    ends = [s.numbers[-1] for s in series if s.numbers and math.isfinite(s.numbers[-1])]
    return "".join(
        [
            _axes(x, title, scale, steps),
            *(_level(x, level, scale, ends) for level in levels),
            *(_curve(x, row, one, scale, steps) for row, one in enumerate(series)),
        ]
    )


def _axes(x: int, title: str, scale: Scale, steps: int) -> str:
    bottom, right = _TOP + _HEIGHT, x + _WIDTH
    parts = [
        f'<text x="{x}" y="{_TOP - 12}" font-weight="600">{title}</text>',
        f'<path d="M{x} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>',
    ]
    for position, label in scale.marks():
        parts.append(f'<text x="{x - 6}" y="{scale.y_of(position) + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<text x="{x}" y="{bottom + 16}">1</text>')
    parts.append(f'<text x="{right}" y="{bottom + 16}" text-anchor="end">step {steps}</text>')
    return "".join(parts)


def _level(x: int, level: Level, scale: Scale, ends: Sequence[float]) -> str:
    y = scale.y(level.value)
    nearest = min(ends, key=lambda end: abs(scale.y(end) - y), default=0.0)
    # on the side on which the nearest curve does not end, and never in the title or below the axis
    below = nearest >= level.value or y < _TOP + 14
    side = 12 if below and y < _TOP + _HEIGHT - 12 else -4
    return (
        f'<path d="M{x} {y:.1f}h{_WIDTH}" {_inked(level.dtype)} stroke-dasharray="1 4" stroke-width="2"/>'
        f'<text x="{x + _WIDTH - 4}" y="{y + side:.1f}" text-anchor="end" {_inked(level.dtype, "fill")}>'
        f"{escape(level.label)}</text>"
    )


def _curve(x: int, row: int, series: Series, scale: Scale, steps: int) -> str:
    """A curve up to its first number that is not finite, and its line in the legend."""
    finite = next((n for n, v in enumerate(series.numbers) if not math.isfinite(v)), len(series.numbers))
    broken = f" (not finite from step {finite + 1} on)" if finite < len(series.numbers) else ""
    points = " ".join(
        f"{x + _WIDTH * step / max(steps - 1, 1):.1f},{scale.y(value):.1f}"
        for step, value in enumerate(series.numbers[:finite])
    )
    dash = f' stroke-dasharray="{series.dashes}"' if series.dashes else ""
    ink = _inked(series.dtype)
    y = _TOP + _HEIGHT + 32 + 14 * row
    return (
        f'<polyline points="{points}" fill="none" {ink} stroke-width="2"{dash}/>'
        f'<path d="M{x} {y - 4}h18" {ink} stroke-width="2"{dash}/>'
        f'<text x="{x + 24}" y="{y}">{escape(series.label + broken)}</text>'
    )
