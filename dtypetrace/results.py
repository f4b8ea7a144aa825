"""What a trace shows, worked out once from its recording: findings, fixes, the patch, the lines of the program.

Views render these results and need neither the program's text nor the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

from .parts import attempt, collected
from .records import Edit, Finding, Frame, Inserted, Place, Recording, Results, Sources
from .records.text import NO_TEXT, ProgramText
from .source import expressions

_Kind = TypeVar("_Kind")
_JUDGED = ("events", "ops", "refused", "values", "updates", "plans", "precisions", "compared", "unchanged", "regions")
"""The tables of a recording in which rules find something."""

AROUND = 2
"""Lines shown above and below each one that a finding names."""
CONTEXT = 3
"""Lines kept above and below each edit: a patch program finds the place by them."""


def conclude(recording: Recording, ignore: frozenset[str] = frozenset()) -> Results:
    """Judges a recording that already has the facts from the text (``source.facts``). ``ignore``: codes to leave
    out."""
    with collected() as failed:
        found = attempt("the findings", lambda: _findings(recording, ignore), ())
        fixes, diff = _repairs(recording) if recording.refused else ((), "")
        shown = results(recording, found, fixes=fixes, diff=diff)
    return with_failed(shown, failed)


def _findings(recording: Recording, ignore: frozenset[str]) -> tuple[Finding, ...]:
    """The findings. The rules are imported for a recording that has something to judge: they take longer than that."""
    if not any(getattr(recording, table) for table in _JUDGED):
        return ()
    from . import rules

    return rules.find(recording, ignore)


def _repairs(recording: Recording) -> tuple[tuple[Inserted, ...], str]:
    """What autofix inserted into refused calls, and the patch for it."""
    from . import autofix

    fixes: tuple[Inserted, ...] = attempt("the list of fixes", lambda: autofix.fixes(recording), ())
    return fixes, attempt("the patch", lambda: autofix.diff(recording), "")


def with_failed(shown: Results, failed: Iterable[str]) -> Results:
    """The results, with what parts of dtypetrace's own work failed."""
    recording = shown.recording
    not_seen = tuple(dict.fromkeys((*recording.not_seen, *failed)))
    return replace(shown, recording=replace(recording, not_seen=not_seen)) if not_seen != recording.not_seen else shown


def results(recording: Recording, findings: Sequence[Finding], **rest: Any) -> Results:
    """The results for known findings. In the recording, the program's whole text is replaced by the lines that views
    show."""
    text = recording.text
    shown = [attempt(f"the names in the flow of {f.code}", partial(_with_names, f, text), f) for f in findings]
    sources = attempt("the lines of the program", lambda: lines_shown(shown, text), Sources())
    return Results(
        replace(recording, sources=sources, text=NO_TEXT), tuple(replace(f, sources=sources) for f in shown), **rest
    )


def _with_names(finding: Finding, text: ProgramText) -> Finding:
    """The finding, with names that only the text has: of what the user's own line called, where the birth was inside a
    library, and of what was cast to the dtype of another tensor."""
    flow = list(finding.flow)
    if flow and (called := expressions.called(text, flow[0].place)):
        flow[0] = replace(flow[0], called=called)
    for number, step in enumerate(flow):
        if step.how == "attribute" and step.place.stack:
            flow[number] = replace(step, receiver=expressions.cast_name(text, step.place.stack[0]))
    return replace(finding, flow=tuple(flow))


def lines_shown(findings: Sequence[Finding], text: ProgramText) -> Sources:
    """The lines around every place that the findings name, the lines that their edits change, and where marked
    expressions begin."""
    lines: dict[str, dict[str, str]] = {}
    begins: dict[str, dict[str, int]] = {}

    def keep(file: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            if line := text.line(file, number):
                lines.setdefault(file, {})[str(number)] = line

    for place in dict.fromkeys(_found(Place, findings)):
        for frame in place.stack:
            if frame.user or frame is place.stack[0]:
                keep(frame.file, range(max(1, frame.line - AROUND), (frame.end_line or frame.line) + AROUND + 1))
        marked = place.user_frame
        begin = _begin(marked, text) if marked is not None else None
        if marked is not None and begin is not None:
            begins.setdefault(marked.file, {})[f"{marked.line}:{marked.column}"] = begin
            keep(marked.file, [begin])
    for edit in _found(Edit, findings):
        keep(edit.file, range(max(1, edit.start[0] - CONTEXT), edit.end[0] + CONTEXT + 1))
    return Sources(lines, begins)


def _begin(frame: Frame, text: ProgramText) -> int | None:
    """The line where an expression begins whose mark is only at its end: in a chain of methods, only the last one is
    marked."""
    before = text.line(frame.file, frame.line)[: (frame.column or 1) - 1]
    node = expressions.expression_at(text, frame) if not before.strip(_CLOSING) else None
    return node.lineno if node is not None and node.lineno < frame.line else None


_CLOSING = " \t)]}."
"""Characters that may precede a mark at the end of an expression."""


def _found(kind: type[_Kind], value: Any) -> Iterator[_Kind]:
    """Every value of one type inside records."""
    if isinstance(value, kind):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _found(kind, getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _found(kind, item)
