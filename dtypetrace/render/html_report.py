"""The HTML report: first a plain view of everything it shows, then one template that renders it to one offline file."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..lora.verdict import NUMBERS, Retraining
from ..records import Edit, Finding, Frame, Place, Recording
from . import listings, module_tree, page_tables, timeline, wording
from .pictures import Pictures
from .svg import columns, draw, shortened

_FOLDER = Path(__file__).with_name("templates")
_DRAWN = 30
"""Findings with a drawing and source; the ones after it are told in a line each, with their notes."""
_AROUND = 2
_WIDEST = 240

# ---------------------------------------------------------------- the view


@dataclass
class Mark:
    """A stretch of a source line that a label belongs to; ``column`` is where the label starts."""

    column: int
    label: str
    kind: str


@dataclass
class SourceLine:
    """One line of a source window: its pieces as (text, marked or not), the labels below it."""

    number: int
    pieces: list[tuple[str, bool]]
    marks: list[Mark] = field(default_factory=list)


@dataclass
class Window:
    """Lines of one file, a gap before those that do not follow the line above."""

    file: str
    lines: list[SourceLine | None]


@dataclass
class Change:
    """An edit as lines of a diff, each with its sign, and as text to be copied."""

    file: str
    lines: list[tuple[str, str]]
    text: str


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
    chain: list[tuple[str, str, str]]
    """(place, words, dtype), the birth first."""
    windows: list[Window]
    drawing: str
    notes: list[str]
    raised: str
    fix: str
    fix_at: str
    alternatives: list[str]
    changes: list[Change]
    stack: list[tuple[str, str, bool]]
    explained: str


@dataclass
class Page:
    """Everything that the report shows."""

    title: str
    verdict: str
    tone: str
    summary: str
    facts: list[tuple[str, str]]
    not_seen: list[str]
    cards: list[Card]
    modules: list[module_tree.Module]
    module_lines: int
    strips: list[timeline.Strip]
    legend: list[tuple[str, str]]
    ticks: bool
    tables: list[dict[str, Any]]
    adapters: Retraining | None = None


def page(
    recording: Recording, findings: Sequence[Finding], *, source: bool = True, retraining: Retraining | None = None
) -> Page:
    """The view of a trace. ``source=False`` leaves the program's text out; ``retraining`` is shown as well, or alone where
    nothing was traced."""
    if retraining is not None and not recording.meta:
        return _retraining_alone(retraining)
    pictures = Pictures(recording)
    seen: Counter[str] = Counter()
    anchors = []
    for f in findings:
        seen[f.code] += 1
        anchors.append(f"{f.code}-{seen[f.code]}")
    modules = module_tree.tree(recording, list(zip(anchors, findings)))
    rows = listings.ops(recording)
    families = Counter(listings.family(d) for r in rows for d in (r.outputs[:1] or ("",)))
    meta = recording.meta
    facts = [("torch", str(meta.get("torch", ""))), ("Python", str(meta.get("python", "")))]
    facts += [
        ("steps", f"{meta.get('steps', 0):,}"),
        ("ops", f"{meta.get('ops', 0):,}"),
        ("distinct ops", f"{len(rows):,}"),
    ]
    facts += [("parameters", _sizes(recording))] if recording.parameters else []
    return Page(
        title="dtypetrace: " + (findings[0].title if findings else "no dtype problem found"),
        verdict=verdict(findings),
        tone=findings[0].severity if findings else "clean",
        summary=over(recording),
        facts=[(name, value) for name, value in facts if value],
        not_seen=list(recording.not_seen),
        cards=[
            card(recording, f, anchor, pictures, source=source, brief=number >= _DRAWN)
            for number, (anchor, f) in enumerate(zip(anchors, findings))
        ],
        modules=modules,
        module_lines=sum(1 + module_tree.size(m) for m in modules),
        strips=timeline.strips(rows),
        legend=[(f, timeline.NAMES[f]) for f in timeline.NAMES if families[f]],
        ticks=any(r.change for r in rows),
        tables=page_tables.tables(recording, rows),
        adapters=retraining,
    )


def _retraining_alone(retraining: Retraining) -> Page:
    tone = "clean" if retraining.confirmed else "warning"
    return Page(
        title=f"dtypetrace: {retraining.headline}", verdict=f"{retraining.headline}.", tone=tone, summary=_retrained(retraining), facts=[], not_seen=[], cards=[],
        modules=[], module_lines=0, strips=[], legend=[], ticks=False, tables=[], adapters=retraining,
    )  # fmt: skip


def _retrained(r: Retraining) -> str:
    return f"{r.over}, as they are and in float32"


def verdict(findings: Sequence[Finding]) -> str:
    """One sentence: the worst finding's, or that there is none."""
    if not findings:
        return "No dtype problem found."
    first = findings[0]
    culprit = first.culprit
    born = ""
    if culprit is not None and culprit.origin.place.stack:
        born = f" {culprit.shown} is {culprit.dtype} because of {wording.at(_outermost(culprit.origin.place))}."
    return f"{first.title[0].upper()}{first.title[1:]}.{born}"


def _outermost(place: Place) -> Place:
    user = place.user_frame
    return Place((user,)) if user is not None else place


def over(recording: Recording) -> str:
    steps, ops = recording.meta.get("steps", 0), recording.meta.get("ops", 0)
    return f"{steps:,} optimizer step{'s' if steps != 1 else ''}, {ops:,} ops watched"


def _sizes(recording: Recording) -> str:
    sizes: Counter[str] = Counter()
    for p in recording.parameters:
        sizes[p.dtype] += p.size
    return ", ".join(f"{_amount(n)} {dtype}" for dtype, n in sizes.most_common(4))


def _amount(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)


# ---------------------------------------------------------------- cards


def card(
    recording: Recording,
    f: Finding,
    anchor: str,
    pictures: Pictures,
    *,
    source: bool = True,
    brief: bool = False,
    drawing: bool = True,
) -> Card:
    """One finding as it is shown; ``brief`` leaves out the drawing and the source."""
    labels = [(frame, label) for frame, label, *_ in wording.labels(f)]
    picture = pictures.finding(f) if drawing and not brief else None
    return Card(
        anchor=anchor,
        code=f.code,
        severity=f.severity,
        kind=f.kind,
        title=f.title,
        count=f.count,
        where=wording.at(f.site),
        module=f.module,
        phase=f.phase if f.phase != "other" else "",
        chain=_chain(f),
        windows=windows(recording, labels) if source and not brief else [],
        drawing=draw(picture, f"The flow of dtypes that led to {f.code}: {f.title}")
        if picture is not None and len(picture) > 1
        else "",
        notes=list(dict.fromkeys((*wording.operand_notes(f), *f.notes))),
        raised=f"{f.exception.type}: {f.exception.message}" if f.exception else "",
        fix=f.fix.why if f.fix else "",
        fix_at=wording.at(f.fix.place) if f.fix else "",
        alternatives=list(f.fix.alternatives) if f.fix else [],
        changes=[c for e in f.fix.edits if (c := change(recording, e))] if f.fix and source else [],
        stack=[(f"{wording.relative(frame.file)}:{frame.line}", frame.function, frame.user) for frame in f.site.stack],
        explained=f"dtypetrace explain {f.code}",
    )


def _chain(f: Finding) -> list[tuple[str, str, str]]:
    last = len(f.flow) - 1
    return [
        (
            wording.at(step.place),
            wording.label(f, step, n, last).removesuffix(wording.inside(step.place)),
            step.to if n < last else "",
        )
        for n, step in enumerate(f.flow)
    ]


def windows(recording: Recording, labels: Sequence[tuple[Frame, str]]) -> list[Window]:
    """The labelled lines with those around them, file by file in the order of the labels."""
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
                lines.append(SourceLine(number - 1, []))  # a blank one
            elif before and number > before + 1:
                lines.append(None)
            lines.append(_source_line(number, text, marked.get(number, ()), last))
            before = number
        made.append(Window(wording.relative(file), lines))
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
    marks = [Mark(columns(text[start:b].expandtabs(4)) + shift, label, kind) for b, _, label, kind in spans]
    return SourceLine(number, [p for p in pieces if p[0]], marks)


def change(recording: Recording, edit: Edit) -> Change | None:
    """An edit as a diff, None where the program's text is not at hand."""
    before = [recording.line(edit.file, number) for number in range(edit.start[0], edit.end[0] + 1)]
    if not any(before):
        return None
    after = (before[0][: edit.start[1] - 1] + edit.after + before[-1][edit.end[1] - 1 :]).split("\n")
    file, line = wording.relative(edit.file), edit.start[0]
    lines = [*(("-", b) for b in before), *(("+", a) for a in after)]
    head = f"--- a/{file}\n+++ b/{file}\n@@ -{line},{len(before)} +{line},{len(after)} @@\n"
    return Change(f"{file}:{line}", lines, head + "".join(f"{sign}{text}\n" for sign, text in lines))


# ---------------------------------------------------------------- rendering


def render(
    recording: Recording, findings: Sequence[Finding], *, source: bool = True, retraining: Retraining | None = None
) -> str:
    """The report as one HTML document that loads nothing."""
    shown = page(recording, findings, source=source, retraining=retraining)
    return clean(template("report.html.j2").render(
        page=shown, css=asset("report.css"), js=asset("report.js"), script_hash=_hash(asset("report.js")), data=_data(shown.tables),
    ))  # fmt: skip


@functools.cache
def _environment() -> Any:
    import jinja2
    from markupsafe import Markup

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.globals.update(numbers=NUMBERS, retrained=_retrained)
    made.filters.update(dtype=_dtype, drawn=Markup, short=shortened, family=listings.family, inked=inked)
    return made


def template(name: str) -> Any:
    return _environment().get_template(name)


@functools.cache
def asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup(_FOLDER.joinpath(name).read_text("utf-8"))


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(tables: Sequence[dict]) -> Any:
    """JSON for a script element: nothing in it can end that element or begin a comment."""
    from markupsafe import Markup

    return Markup(json.dumps(tables, separators=(",", ":")).replace("<", "\\u003c"))


def _dtype(name: str) -> Any:
    """A dtype's name in its colour."""
    from markupsafe import Markup

    return Markup("<b class={}>{}</b>").format(listings.family(name) or "none", name)


_WORD = re.compile(r"\b((?:b?float|complex|u?int)\d+\w*|bool)\b")


_JOINT = re.compile(r"(?<=[./])(?=\w)")


def inked(text: str) -> Any:
    """Words with the dtypes in them in their colours; long names and paths may break at their joints."""
    from markupsafe import Markup, escape

    def plain(part: str) -> Any:
        words = (
            Markup("<wbr>").join(map(escape, _JOINT.split(word) if len(word) > 24 else (word,)))
            for word in re.split(r"(\s+)", part)
        )
        return Markup("").join(words)

    return Markup("").join(_dtype(part) if n % 2 else plain(part) for n, part in enumerate(_WORD.split(text)))


_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def clean(html: str) -> str:
    """Characters that steer a page or a reader's eye without being seen (controls, bidirectional overrides, halves of
    a surrogate pair) are written as their numbers."""
    return _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", html)
