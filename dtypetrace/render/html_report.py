"""The HTML report: first a view of its contents as plain data, then one template that renders the view to one offline
file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import graph
from ..parts import attempt, collected
from ..records import Finding, Recording
from ..rules import receipt
from . import action, coverage, html_text, listings, module_tree, page_tables, receipts, timeline, wording
from .cards import Card, card

_DRAWN = 30
"""Findings with their source; later ones only have their notes, which keeps the file small."""

# ---------------------------------------------------------------- the view


@dataclass
class Page:
    """Everything that the report shows."""

    title: str
    action: action.Action
    tone: str
    facts: list[str] = field(default_factory=list)
    """The run in a line."""
    stopped: str = ""
    """Where an exception ended the run; empty where none did."""
    not_seen: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    """Which steps were watched, and which compiled code was not judged, where that is not all."""
    saw_all: bool = True
    differences: list[list[str]] = field(default_factory=list)
    """Of two runs: the lines of each difference, and what else there is to say."""
    also: list[str] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    receipt: list[receipts.Line] = field(default_factory=list)
    receipt_titles: tuple[str, ...] = receipts.TITLES
    modules: list[module_tree.Module] = field(default_factory=list)
    module_most: dict[str, int] = field(default_factory=dict)
    """The largest amounts of the tree's bars."""
    errors: bool = False
    """Whether modules have errors: the run had a reference."""
    timeline: timeline.Timeline = field(default_factory=timeline.Timeline)
    legend: list[tuple[str, str]] = field(default_factory=list)
    ticks: str = ""
    """What a tick below the timeline means; empty where there is none."""
    watched: str = ""
    """Which steps were watched, if not all."""
    tables: list[dict[str, Any]] = field(default_factory=list)


def page(recording: Recording, findings: Sequence[Finding], *, source: bool = True) -> Page:
    """The view of a trace, without the parts that failed. ``source=False`` leaves the program's text out."""
    with collected() as failed:
        shown = _page(recording, findings, source=source)
    shown.not_seen += [sentence for sentence in failed if sentence not in shown.not_seen]
    return shown


def _page(recording: Recording, findings: Sequence[Finding], *, source: bool) -> Page:
    seen: Counter[str] = Counter()
    anchors = []
    for f in findings:
        seen[f.code] += 1
        anchors.append(f"{f.code}-{seen[f.code]}")
    modules: list[module_tree.Module] = attempt(
        "the module tree", lambda: module_tree.tree(recording, list(zip(anchors, findings))), []
    )
    rows = listings.ops(recording)
    families = Counter(listings.family(d) for r in rows for d in (r.outputs[:1] or ("",)))
    return Page(
        title="dtypetrace: " + (findings[0].title if findings else coverage.nothing_found(recording)),
        action=action.action(recording, findings, anchors[0] if anchors else "", source=source),
        tone=findings[0].severity if findings else "clean",
        facts=action.facts(recording, len(rows)),
        stopped=_stopped(recording),
        not_seen=list(recording.not_seen),
        partly=_partly(recording, findings),
        saw_all=not (recording.not_seen or coverage.watched(recording) or coverage.compiled(recording)),
        cards=[
            card(recording, f, anchor, source=source, brief=number >= _DRAWN)
            for number, (anchor, f) in enumerate(zip(anchors, findings))
        ],
        receipt=attempt("the receipt", lambda: list(receipts.lines(receipt.rows(recording))), []),
        modules=modules,
        module_most=module_tree.most(modules),
        errors=any(m.error is not None for m in modules),
        timeline=attempt(
            "the timeline",
            lambda: timeline.timeline(recording, rows, list(zip(anchors, findings))),
            timeline.Timeline(),
        ),
        legend=[(f, timeline.NAMES[f]) for f in timeline.NAMES if families[f]],
        ticks="dtype changes" if any(r.change for r in rows) else "",
        watched=coverage.watched(recording),
        tables=page_tables.tables(recording, rows),
    )


def _partly(recording: Recording, findings: Sequence[Finding]) -> list[str]:
    unjudged = coverage.not_judged_line(recording) if coverage.compiled(recording) else ""
    # without a finding the first screen says what was not judged where it says that there is none
    told = coverage.watched(recording), coverage.lora(recording), unjudged if findings else ""
    return [line for line in told if line]


def _stopped(recording: Recording) -> str:
    left = next((r for r in reversed(recording.refused) if r.left), None)
    frame = graph.place_of(recording, left.place).user_frame if left is not None else None
    return f"{wording.relative(frame.file)}:{frame.line}" if frame is not None else ""


# ---------------------------------------------------------------- rendering


def render(recording: Recording, findings: Sequence[Finding], *, source: bool = True) -> str:
    """The report as one HTML document that loads nothing."""
    return rendered(page(recording, findings, source=source))


def rendered(shown: Page) -> str:
    """A page as one HTML document."""
    script = html_text.script()
    filled = html_text.template("report.html.j2").render(
        page=shown,
        css=html_text.asset("report.css"),
        js=script,
        script_hash=html_text.script_hash(script),
        data=html_text.packed(shown.tables),
    )
    return html_text.clean(filled)
