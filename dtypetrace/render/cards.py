"""A finding as the HTML report shows it: the flow from birth to harm as a drawing, source lines with labels, the fix as
a diff. Without source lines the drawing has the words of the labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ..parts import attempt
from ..records import Finding, FlowStep, Frame, Place, Recording
from ..tables.english import rival, subject
from . import wording
from .edits import CONTEXT, DiffBlock, change, file_of, joined
from .layout import columns

_AROUND = 2
"""Lines shown above and below a labelled one."""
_WIDEST = 240
"""Characters of a source line that are shown: a longer one is cut around its span."""


@dataclass
class Label:
    """A part of a source line that has a label; ``column`` is where the label starts."""

    column: int
    label: str
    kind: str


@dataclass
class SourceLine:
    """One line of a source window: its pieces as (text, marked or not), and the labels below it."""

    number: int
    pieces: list[tuple[str, bool]]
    marks: list[Label] = field(default_factory=list)


@dataclass
class Window:
    """Lines of one file; None marks a gap between lines that are not consecutive."""

    file: str
    lines: list[SourceLine | None]
    path: str = ""
    """The absolute path, empty for what is no file."""


@dataclass
class Station:
    """One box of a flow's drawing: what happened, where, and the dtypes that go on from it (of the last one, those that
    meet in it). ``words``: the label of the source line."""

    what: str
    dtype: str
    file: str = ""
    line: int = 0
    column: int = 0
    shown: str = ""
    words: str = ""


@dataclass
class Drawing:
    """A flow: a lane of boxes for each tensor, the culprit's first, and the box to which they all lead."""

    lanes: list[list[Station]]
    end: Station


@dataclass
class Card:
    """One finding as it is shown."""

    anchor: str
    code: str
    severity: str
    kind: str
    title: str
    count: int
    where: str
    module: str
    phase: str
    flow: Drawing | None
    windows: list[Window]
    notes: list[str]
    raised: str
    fix: str
    fix_at: str
    fix_lines: list[str]
    alternatives: list[str]
    changes: list[DiffBlock]
    stack: list[tuple[str, str, bool]]
    explained: str
    path: list[str]
    """The modules that its flow goes through, in order; empty for what runs outside of them."""


def card(
    recording: Recording,
    f: Finding,
    anchor: str,
    *,
    source: bool = True,
    brief: bool = False,
) -> Card:
    """One finding as it is shown; ``brief`` leaves out the source."""
    labels = attempt(f"the labels of {f.code}", lambda: _labels(f), [])
    shown: list[Window] = (
        attempt(f"the source lines of {f.code}", lambda: windows(recording, labels), []) if source and not brief else []
    )
    changes: list[DiffBlock] = attempt(f"the diff of {f.code}", lambda: changes_of(recording, f), []) if source else []
    drawn = attempt(f"the flow of {f.code}", lambda: drawing(f), None)
    others = attempt(f"a note of {f.code}", lambda: wording.operand_notes(f), ()) if _alone(drawn) else ()
    return Card(
        anchor=anchor,
        code=f.code,
        severity=f.severity,
        kind=f.kind,
        title=f.title,
        count=f.count if wording.times(f) else 1,
        where=wording.at(f.site),
        module=wording.module(f.module),
        phase=f.phase if f.phase != "other" else "",
        flow=drawn,
        windows=shown,
        notes=list(dict.fromkeys((*others, *f.notes, *wording.tried(f)))),
        raised=f"{f.exception.type}: {f.exception.message}" if f.exception else "",
        fix=f.fix.why if f.fix else "",
        fix_at=wording.fix_at(f.fix) if f.fix else "",
        fix_lines=list(f.fix.lines) if f.fix and not changes else [],
        alternatives=list(f.fix.alternatives) if f.fix else [],
        changes=changes,
        stack=[(f"{wording.relative(frame.file)}:{frame.line}", frame.function, frame.user) for frame in f.site.stack],
        explained=f"dtypetrace explain {f.code}",
        path=[name for name, _ in groupby(step.module for step in f.flow)],
    )


def _labels(f: Finding) -> list[tuple[Frame, str]]:
    """The labels of the flow and, before the last one, where the operand that it meets got its dtype."""
    labels = wording.labels(f)
    other = rival(f)
    frame = other.origin.place.user_frame if other is not None else None
    if not labels or other is None or frame is None or not frame.user or frame in [shown for shown, _ in labels]:
        return labels
    return [
        *labels[:-1],
        (frame, f"{subject(other, f.op, f.phase, f.site)} is {other.dtype} because of this line"),
        labels[-1],
    ]


def changes_of(recording: Recording, f: Finding) -> list[DiffBlock]:
    """The edits as diffs; none of them where the text of one is not available."""
    shown, near = (f.fix.edits, 0) if f.fix is not None else ((), 0)
    if f.fix is not None and not shown:  # all of these are needed: together they are one patch
        shown, near = tuple(sorted(f.fix.by_hand, key=lambda edit: (edit.file, edit.start))), CONTEXT
    made = [change(recording, edit) for edit in joined(recording, shown, near)]
    return [block for block in made if block is not None] if None not in made else []


def drawing(f: Finding) -> Drawing | None:
    """The flow of a finding; None where nothing leads to the place of harm."""
    last = len(f.flow) - 1
    told = [
        _station(step.place, _what(step), step.to, wording.label(f, step, n, last)) for n, step in enumerate(f.flow)
    ]
    own = [s for n, s in enumerate(told[:last]) if not n or (s.what, s.shown, s.dtype) != _seen(told[n - 1])]
    if len(own) > _MOST_STATIONS:
        left_out = Station(f"{len(own) - _MOST_STATIONS + 1} more", own[-_LAST_STATIONS - 1].dtype)
        own = [*own[: _MOST_STATIONS - _LAST_STATIONS - 1], left_out, *own[-_LAST_STATIONS:]]
    other = rival(f) if f.kind == "collision" else None
    lanes = [own] if own else []
    if other is not None and other.origin.place.stack:
        origin = other.origin
        made = _station(origin.place, f"{origin.op}()" if origin.op else origin.kind, other.dtype, "")
        lanes.append([replace(made, what=f"{other.shown}: {made.what}")])
    if not lanes or not told:
        return None
    end = f.flow[-1]
    if sum(lanes, []) == own[:1] and (own[0].what, own[0].shown) == (told[-1].what, told[-1].shown):
        return None  # it is born where it matters
    met = f"{f.culprit.dtype} ≠ {other.dtype}" if other is not None and f.culprit is not None else ""
    became = f"{end.source} → {end.to}" if end.source and end.source != end.to else ""
    return Drawing(lanes, replace(told[-1], dtype=met or became))


def _alone(drawn: Drawing | None) -> bool:
    """Whether a drawing does not show where the other operand comes from."""
    return drawn is None or len(drawn.lanes) < 2


_MOST_STATIONS, _LAST_STATIONS = 6, 3
"""Boxes in a lane, and how many of them stand behind those that were left out."""


def _seen(station: Station) -> tuple[str, str, str]:
    return station.what, station.shown, station.dtype


def _what(step: FlowStep) -> str:
    """What a step of a flow did, as a call."""
    if step.op in ("", "autocast", "setting"):
        return step.op or step.how
    mixed = step.source if " + " in step.source else ""
    return f"{step.op}({step.via if step.how == 'attribute' else mixed})"


def _station(place: Place, what: str, dtype: str, words: str) -> Station:
    frame = place.user_frame or (place.stack[0] if place.stack else None)
    words = words.removesuffix(wording.inside(place))
    if frame is None:
        return Station(what, dtype, words=words)
    shown = f"{os.path.basename(frame.file)}:{frame.line}"
    return Station(what, dtype, file_of(frame.file), frame.line, frame.column or 1, shown, words)


def windows(recording: Recording, labels: Sequence[tuple[Frame, str]]) -> list[Window]:
    """The labelled lines and those around them, file by file in the order of the labels."""
    files: dict[str, dict[int, list[tuple[Frame, str]]]] = {}
    for frame, label in labels:
        files.setdefault(frame.file, {}).setdefault(frame.line, []).append((frame, label))
    last = labels[-1] if labels else None
    made = []
    for file, marked in files.items():
        numbers = sorted({n for line in marked for n in range(max(1, line - _AROUND), line + _AROUND + 1)})
        lines: list[SourceLine | None] = []
        before = 0
        for number in numbers:
            text = recording.line(file, number)
            if not text and number not in marked:
                continue
            if before and number == before + 2:
                lines.append(SourceLine(number - 1, []))  # a blank line
            elif before and number > before + 1:
                lines.append(None)
            lines.append(_source_line(number, text, marked.get(number, ()), last))
            before = number
        made.append(Window(wording.relative(file), lines, file_of(file)))
    return made


def _source_line(
    number: int, text: str, labels: Sequence[tuple[Frame, str]], last: tuple[Frame, str] | None
) -> SourceLine:
    spans = []
    for frame, label in labels:
        begin = (frame.column or 1) - 1
        begin = begin if begin < len(text) else len(text) - len(text.lstrip())
        end = (frame.end_column or 1) - 1 if frame.end_line == frame.line else len(text)
        spans.append((begin, max(end, begin), label, "end" if (frame, label) == last else ""))
    start = max(0, min((b for b, *_ in spans), default=0) - _WIDEST // 2) if len(text) > _WIDEST else 0
    stop = start + _WIDEST
    pieces, at = [("…", False)] if start else [], start
    for begin, end in sorted({(b, e) for b, e, *_ in spans}):
        begin, end = max(begin, at), min(end, stop)
        if begin < end:
            pieces += [(text[at:begin].expandtabs(4), False), (text[begin:end].expandtabs(4), True)]
            at = end
    pieces.append((text[at:stop].expandtabs(4) + ("…" if len(text) > stop else ""), False))
    shift = 1 if start else 0
    marks = [Label(columns(text[start:b].expandtabs(4)) + shift, label, kind) for b, _, label, kind in spans]
    return SourceLine(number, [p for p in pieces if p[0]], marks)
