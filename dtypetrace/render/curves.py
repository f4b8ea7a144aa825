"""The picture of a retraining, as SVG text: how far each step moved the weights, against what their dtype can hold, and the losses.

Plain attributes, so it shows in a notebook and by itself; the text takes the page's colour. Each line has its dtype's family
as its class, so that a page can colour it as it colours that dtype elsewhere.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from .listings import family

if TYPE_CHECKING:
    from ..lora.verdict import Retraining

COLOURS = {"float16": "#9b3d7a", "bfloat16": "#b84a00", "float32": "#2f7fc1", "": "#7d8590"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 300, 150, 68, 30, 34, 84
_FLOOR = 1e-12
"""Of the logarithmic axis: a change of zero is drawn below it."""


def curves(result: Retraining) -> str:
    """Two panels side by side, 820 by 250 units."""
    width = _LEFT + _WIDTH
    return _drawing(result, 2 * width + _GAP, _updates(result, _LEFT), _losses(result, width + _GAP + _LEFT // 2))


def panels(result: Retraining) -> tuple[str, str]:
    """The same as two pictures, each 378 by 250 units, for a page that lays them out itself."""
    return _drawing(result, _LEFT + _WIDTH + 10, _updates(result, _LEFT)), _drawing(
        result, _LEFT + _WIDTH + 10, _losses(result, _LEFT)
    )


def _drawing(result: Retraining, width: int, *parts: str) -> str:
    height = _TOP + _HEIGHT + _BOTTOM + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curves" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="currentColor" style="max-width:100%;height:auto">'
        f"<title>{escape(_said(result))}</title>{''.join(parts)}</svg>"
    )


def _updates(result: Retraining, x: int) -> str:
    before, after = result.before, result.after
    series = [
        (f"as they are, {before.dtype}", before.changes, before.dtype, ""),
        ("in float32", after.changes, "float32", "6 3" if before.dtype == "float32" else ""),
    ]
    lines = {f"half a step of {run.dtype}": (run.resolution, run.dtype) for run in (before, after)}
    return _panel(x, "mean change of a weight in a step", series, lines, result.steps, logarithmic=True)


def _losses(result: Retraining, x: int) -> str:
    before, after = result.before, result.after
    series = [
        ("untrained", result.untrained, "", "2 3"),
        (f"as they are, {before.dtype}", before.losses, before.dtype, ""),
        ("in float32", after.losses, "float32", "6 3" if before.dtype == "float32" else ""),
    ]
    return _panel(x, "loss", series, {}, result.steps, logarithmic=False)


def _inked(dtype: str, what: str = "stroke") -> str:
    return f'class="{family(dtype) or "none"}" color="{COLOURS.get(dtype, COLOURS[""])}" {what}="currentColor"'


def _said(result: Retraining) -> str:
    run = "learns" if result.confirmed else "is not confirmed to learn"
    return f"Update sizes and losses of both runs, {result.before.dtype} and float32; the float32 run {run}"


def _panel(x: float, title: str, series: list[tuple], lines: dict, steps: int, *, logarithmic: bool) -> str:
    values = [v for _, numbers, *_ in series for v in numbers if math.isfinite(v)] + [v for v, _ in lines.values()]
    if logarithmic:
        values = [max(v, _FLOOR) for v in values if v > 0]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if logarithmic:
        low, high = math.floor(math.log10(low or _FLOOR)) - 1, math.ceil(math.log10(high or 1.0))
    if high <= low:  # never on a logarithmic axis
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)

    def across(step: int) -> float:
        return x + _WIDTH * step / max(steps - 1, 1)

    def up(value: float) -> float:
        if logarithmic:
            value = max(math.log10(value), low) if value > 0 else low
        return _TOP + _HEIGHT * (1 - (value - low) / (high - low))

    parts = [f'<text x="{x}" y="{_TOP - 12}" font-weight="600">{title}</text>']
    parts.append(
        f'<path d="M{x} {_TOP}V{_TOP + _HEIGHT}H{x + _WIDTH}" fill="none" stroke="currentColor" stroke-opacity=".5"/>'
    )
    if logarithmic:
        marks = [(low, "0"), *((n, f"1e{n}") for n in range(high, low, -max(1, -(-(high - low) // 5))))]
    else:
        digits = max(
            4, 1 - math.floor(math.log10((high - low) / 4 / max(abs(low), abs(high))))
        )  # so that neighbours differ
        marks = [(at, f"{at:.{digits}g}") for at in (low + (high - low) * n / 4 for n in range(5))]
    for at, label in marks:
        y = _TOP + _HEIGHT * (1 - (at - low) / (high - low))
        parts.append(f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<text x="{x}" y="{_TOP + _HEIGHT + 16}">1</text>')
    parts.append(f'<text x="{x + _WIDTH}" y="{_TOP + _HEIGHT + 16}" text-anchor="end">step {steps}</text>')
    ends_at = [numbers[-1] for _, numbers, *_ in series if numbers and math.isfinite(numbers[-1])]
    for label, (value, dtype) in lines.items():
        nearest = min(ends_at, key=lambda end: abs(up(end) - up(value)), default=0.0)
        side = 12 if nearest >= value else -4  # the one on which the nearest curve does not end
        parts.append(
            f'<path d="M{x} {up(value):.1f}h{_WIDTH}" {_inked(dtype)} stroke-dasharray="1 4" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{x + _WIDTH - 4}" y="{up(value) + side:.1f}" text-anchor="end" {_inked(dtype, "fill")}>{escape(label)}</text>'
        )
    for row, (label, numbers, dtype, dashes) in enumerate(series):
        points, ends = [], ""
        for step, value in enumerate(numbers):
            if not math.isfinite(value):
                ends = f" (not finite from step {step + 1} on)"
                break
            points.append(f"{across(step):.1f},{up(value):.1f}")
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" {_inked(dtype)} stroke-width="2"{dash}/>')
        y = _TOP + _HEIGHT + 32 + 14 * row
        parts.append(
            f'<path d="M{x} {y - 4}h18" {_inked(dtype)} stroke-width="2"{dash}/><text x="{x + 24}" y="{y}">{escape(label + ends)}</text>'
        )
    return "".join(parts)
