"""The drawing of a retraining, as SVG text: how far each step moved the weights, compared with what their dtype can
represent, and the losses.

It uses plain attributes, so it works in a notebook and by itself, and the text takes the page's colour. Each line has
its dtype's family as its class, so a page can use the colours that the dtypes have elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from .listings import family

if TYPE_CHECKING:
    from ..lora.verdict import Retraining

_COLOURS = {"float16": "#9b3d7a", "bfloat16": "#b84a00", "float32": "#2f7fc1"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 150, 68, 30, 34
_WHOLE = _TOP + _HEIGHT + 70
_LINE_WIDTH = 2
_FLOOR = 1e-12
"""For the logarithmic axis: a change of zero is drawn below this."""


def curves(result: Retraining) -> str:
    """Two panels side by side: how far a step moves a weight, and the losses."""
    return _drawing(result, _panels(result)[:2])


def panels(result: Retraining) -> tuple[str, ...]:
    """The same as pictures for a page that arranges them itself; the third one is the difference of the losses, which
    the second one is often too coarse to show."""
    return tuple(_drawing(result, [panel]) for panel in _panels(result))


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


@dataclass(frozen=True)
class Series:
    """One curve: its name, a number for each step, the dtype whose colour it has, and its dashes."""

    label: str
    numbers: Sequence[float]
    dtype: str = ""
    dashes: str = ""

    @property
    def finite(self) -> Sequence[float]:
        """Up to the first number that is not finite."""
        return self.numbers[: next((n for n, v in enumerate(self.numbers) if not math.isfinite(v)), None)]


def _panels(result: Retraining) -> list[str]:
    before, after, steps = result.before, result.after, result.steps
    as_they_are = f"as they are, {before.dtype}"
    dashes = "6 3" if before.dtype == "float32" else ""
    updates = [
        Series(as_they_are, before.changes, before.dtype),
        Series("in float32", after.changes, "float32", dashes),
    ]
    levels = {run.dtype: (f"half the spacing of {run.dtype}", run.resolution, run.dtype) for run in (before, after)}
    losses = [
        Series("untrained", result.untrained, "", "2 3"),
        Series(as_they_are, before.losses, before.dtype),
        Series("in float32", after.losses, "float32", dashes),
    ]
    made = [
        _panel("mean change of a weight in a step", updates, list(levels.values()), steps, math.log10),
        _panel("loss", losses, [], steps),
    ]
    apart = [
        Series("minus untrained", _minus(after.losses, result.untrained), "", "2 3"),
        Series(f"minus {before.dtype}", _minus(after.losses, before.losses), "float32"),
    ]
    if any(math.isfinite(v) for one in apart for v in one.numbers):
        title = "float32's loss minus the other (below 0: better)"
        made.append(_panel(title, apart, [("no difference", 0.0, "")], steps))
    return made


def _minus(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(some, others)]


def _drawing(result: Retraining, parts: Sequence[str]) -> str:
    moves = "moves its weights" if result.confirmed else "is not confirmed to learn"
    run = "learns" if learning_is_seen(result) else moves
    title = f"Update sizes and losses of both runs, {result.before.dtype} and float32; the float32 run {run}"
    width = _LEFT + _WIDTH + _GAP
    placed = "".join(f'<g transform="translate({n * width})">{part}</g>' for n, part in enumerate(parts))
    whole = len(parts) * width - _GAP + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curves" viewBox="0 0 {whole} {_WHOLE}" width="{whole}" '
        'role="img" font-family="system-ui, sans-serif" font-size="11" fill="currentColor" '
        f'style="max-width:100%;height:auto"><title>{escape(title)}</title>{placed}</svg>'
    )


def _panel(
    title: str,
    series: Sequence[Series],
    levels: Sequence[tuple[str, float, str]],
    steps: int,
    scaled: Callable[[float], float] = float,
) -> str:
    """One panel. levels: horizontal lines, each with its name, value and dtype; scaled: the vertical axis."""
    logarithmic = scaled is math.log10
    values = [v for one in series for v in one.numbers if math.isfinite(v)] + [value for _, value, _ in levels]
    known = [scaled(max(v, _FLOOR) if logarithmic else v) for v in values if v > 0 or not logarithmic] or [0.0, 1.0]
    low, high = (math.floor(min(known)) - 1, math.ceil(max(known))) if logarithmic else (min(known), max(known))
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)

    def y(value: float) -> float:
        at = low if logarithmic and value <= _FLOOR else max(scaled(value), low)
        return _TOP + _HEIGHT * (1 - (at - low) / (high - low))

    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    drawn = [
        _text(_LEFT, _TOP - 12, title, 'font-weight="600"'),
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>',
        _text(_LEFT - 6, _TOP + 4, f"1e{high}" if logarithmic else f"{high:.5g}", 'text-anchor="end"'),
        _text(_LEFT - 6, bottom + 4, "0" if logarithmic else f"{low:.5g}", 'text-anchor="end"'),
        _text(_LEFT, bottom + 16, "1"),
        _text(right, bottom + 16, f"step {steps}", 'text-anchor="end"'),
    ]
    for label, value, dtype in levels:
        at = y(value)
        drawn.append(
            f'<path d="M{_LEFT} {at:.1f}h{_WIDTH}" stroke="currentColor" {_ink(dtype)} stroke-dasharray="1 4"/>'
        )
        # never in the title
        drawn.append(_text(right - 4, max(at - 4, _TOP + 10), label, f'text-anchor="end" {_ink(dtype)}'))
    for row, one in enumerate(series):
        points = (f"{_LEFT + _WIDTH * n / max(steps - 1, 1):.1f},{y(v):.1f}" for n, v in enumerate(one.finite))
        broken = len(one.finite) < len(one.numbers)
        label = one.label + (f" (not finite from step {len(one.finite) + 1} on)" if broken else "")
        at = bottom + 32 + 14 * row
        dashes = f'stroke-dasharray="{one.dashes}"' if one.dashes else ""
        line = f'fill="none" stroke="currentColor" stroke-width="{_LINE_WIDTH}" {dashes} {_ink(one.dtype)}'
        drawn.append(f'<polyline points="{" ".join(points)}" {line}/><path d="M{_LEFT} {at - 4}h18" {line}/>')
        drawn.append(_text(_LEFT + 24, at, label))
    return "".join(drawn)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y:.1f}" fill="currentColor" {more}>{escape(text)}</text>'


def _ink(dtype: str) -> str:
    return f'class="{family(dtype) or "none"}" color="{_COLOURS.get(dtype, "#7d8590")}"'
