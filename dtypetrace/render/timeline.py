"""The dtype timeline: each phase as a strip of ops in the order in which they first ran, coloured by output dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .listings import OpRow, family

NAMES = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f8": "float8",
    "other": "integers and others",
    "": "no tensor",
}
_COLUMNS = 200
_HEIGHT = 40


@dataclass
class Strip:
    """One phase: its drawing, and the same in words."""

    phase: str
    ops: int
    calls: int
    drawing: str
    words: str
    shares: list[tuple[str, int]]
    """(family, percent of the ops), the largest first."""


def strips(rows: Sequence[OpRow]) -> list[Strip]:
    """One strip for each phase that ran, with at most ``_COLUMNS`` columns; each column is split by the dtypes in
    it."""
    made = []
    for phase in ("other", "forward", "recompute", "backward", "optimizer"):
        own = [r for r in rows if r.phase == phase]
        if own:
            counted = Counter(_family(r) for r in own)
            shares = [(f, round(100 * n / len(own))) for f, n in counted.most_common()]
            words = ", ".join(f"{share}% {NAMES[f]}" for f, share in shares if share)
            made.append(
                Strip(
                    "outside" if phase == "other" else phase,
                    len(own),
                    sum(r.count for r in own),
                    _drawing(phase, own, words),
                    words,
                    shares,
                )
            )
    return made


def _family(row: OpRow) -> str:
    return family(row.outputs[0]) if row.outputs else ""


def _drawing(phase: str, rows: Sequence[OpRow], words: str) -> str:
    bars: dict[str, list[str]] = {}
    open_bars: dict[str, list[int]] = {}
    casts: list[int] = []
    before = -1

    def close(name: str, end: int) -> None:
        begin, top, tall = open_bars.pop(name)
        bars.setdefault(name, []).append(f"M{begin} {top}h{end - begin}v{tall}h{begin - end}z")

    for column in range(_COLUMNS):
        first = column * len(rows) // _COLUMNS
        own = rows[first : max(first + 1, (column + 1) * len(rows) // _COLUMNS)]
        counted = Counter(map(_family, own))
        top, standing = 0, {}
        for name in NAMES:
            if counted[name]:
                tall = (
                    round(_HEIGHT * sum(counted[n] for n in list(NAMES)[: list(NAMES).index(name) + 1]) / len(own))
                    - top
                )
                standing[name] = (top, tall)
                top += tall
        for name in list(open_bars):
            if standing.get(name) != tuple(open_bars[name][1:]):
                close(name, column)
        for name, (top, tall) in standing.items():
            open_bars.setdefault(name, [column, top, tall])
        if any(r.change for r in own) and first != before:
            casts.append(column)
        before = first
    for name in list(open_bars):
        close(name, _COLUMNS)
    paths = "".join(f'<path class="s {name or "none"}" d="{"".join(parts)}"/>' for name, parts in bars.items())
    ticks = "".join(f"M{c} {_HEIGHT + 3}h1v4h-1z" for c in casts)
    return (
        f'<svg class="strip" role="img" aria-label="{phase}: {words}" viewBox="0 0 {_COLUMNS} {_HEIGHT + 8}" '
        'preserveAspectRatio="none">'
        f'{paths}<path class="tick" d="{ticks}"/></svg>'
    )
