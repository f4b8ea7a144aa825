"""The page of ``dtypetrace diff``: what differs between two runs, and the ops of both on one axis."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..compare import alignment
from ..compare.differences import Comparison
from ..records import Recording
from ..rules import patterns
from . import differences, html_report, listings, page_tables, timeline
from .action import Action
from .listings import OpRow
from .page_tables import Column

_NAMES = "a", "b"
_MOST = 200
"""Differences that the page has."""


@dataclass(frozen=True, slots=True)
class _Point:
    """One point of the axis: the ops of both runs that correspond, None where one run has none."""

    sides: tuple[OpRow | None, OpRow | None]

    @property
    def shown(self) -> OpRow:
        return next(row for row in self.sides if row is not None)

    @property
    def differs(self) -> bool:
        one, other = self.sides
        return one is None or other is None or (one.inputs, one.outputs) != (other.inputs, other.outputs)

    def dtypes(self, side: int) -> str:
        row = self.sides[side]
        if row is None:
            return ""
        return " → ".join(filter(None, (page_tables.joined(row.inputs), page_tables.joined(row.outputs))))


def page(pair: tuple[Recording, Recording], found: Comparison, names: differences.Names) -> html_report.Page:
    """The view of a comparison; ``names``: what the two runs are called."""
    points = _axis(pair)
    rows = [[row for point in points if (row := point.sides[side])] for side in (0, 1)]
    headline = differences.summary(found).partition(": ")[2]
    return html_report.Page(
        title=f"dtypetrace diff: {headline}",
        action=Action([(f"{headline[:1].upper()}{headline[1:]}", False)], "clean" if found.same else "warning"),
        tone="clean" if found.same else "warning",
        saw_all=False,
        facts=[f"{a}: {name}" for a, name in zip(_NAMES, names)]
        + [f"{name}: a {a}, b {b}" for name, a, b in found.settings],
        differences=[differences.block(n, d) for n, d in enumerate(found.differences[:_MOST], 1)],
        also=differences.rest(found)[:-1],
        timeline=_timeline(rows, len(points)),
        legend=[(f, name) for f, name in timeline.NAMES.items() if any(_family(r) == f for side in rows for r in side)],
        ticks="dtypes differ" if any(p.differs for p in points) else "",
        tables=[_table(points)] if points else [],
    )


def _family(row: OpRow) -> str:
    return listings.family(row.outputs[0]) if row.outputs else ""


def _axis(pair: tuple[Recording, Recording]) -> list[_Point]:
    """The ops of the first run in their order; what only the second one has stands after what it follows there."""
    found = alignment.aligned(pair, (patterns.root(pair[0]), patterns.root(pair[1])))
    # of one call that runs other ops inside, the last ones give the result
    ops = [*found.ops, *((a[-1], b[-1]) for a, b in (call.sides for call in found.calls))]
    alone = [(a[:-1], b[:-1]) for a, b in (call.sides for call in found.calls)]
    alone += [block.sides for block in (*found.blocks, *found.apart)]
    follows = sorted((b, a) for a, b in ops)
    at: list[tuple[float, int, int | None, int | None]] = [(a, -1, a, b) for a, b in ops]
    at += [(a, -1, a, None) for side, _ in alone for a in side]
    for b in (b for _, side in alone for b in side):
        before = bisect.bisect(follows, (b, -1)) - 1
        at.append((follows[before][1] + 0.5 if before >= 0 else -1.0, b, None, b))
    rows = [
        [replace(row, phase=phase) for row, phase in zip(own, listings.phases(own))] for own in map(listings.ops, pair)
    ]
    points: list[_Point] = []
    for number, (_, _, one, other) in enumerate(sorted(at, key=lambda entry: entry[:2])):
        point = _Point((rows[0][one] if one is not None else None, rows[1][other] if other is not None else None))
        tick = "differs" if point.differs else ""
        first, second = (row and replace(row, number=number, change=tick) for row in point.sides)
        points.append(_Point((first, second)))
    return points


def _timeline(rows: Sequence[Sequence[OpRow]], points: int) -> timeline.Timeline:
    strips = [
        replace(strip, phase=f"{strip.phase} {name}")
        for name, side in zip(_NAMES, rows)
        for strip in timeline.strips(side, ops=points, run=name)
    ]
    order = {phase: n for n, phase in enumerate(timeline.PHASES)}
    strips.sort(key=lambda strip: order[strip.phase.partition(" ")[0]])
    return timeline.Timeline(points, min(timeline.COLUMNS, points), strips)


def _table(points: Sequence[_Point]) -> dict[str, object]:
    about = "Each op that either run has, with its dtypes in both; an empty cell: that run has no such op there."
    lines = page_tables.Lines()
    columns = (
        Column("op", "text", lambda p: p.shown.op),
        Column("a", "dtypes", lambda p: p.dtypes(0)),
        Column("b", "dtypes", lambda p: p.dtypes(1)),
        Column("differs", "flag", lambda p: int(p.differs)),
        lines.columns(lambda p: p.shown.place)[0],
        Column("module", "text", lambda p: p.shown.module, page_tables.short),
        Column("phase", "text", lambda p: p.shown.phase),
    )
    return page_tables.table("ops", "Ops of both", about, (-1, 1), points, columns)
