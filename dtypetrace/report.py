"""Show it: the console text and the JSON report, both views of the same findings.

Never touches torch, so a saved recording renders without it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import tokenize
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from .records import SCHEMA, Chain, Edit, Finding, Frame, Recording, to_plain
from .render import census, wording
from .render.layout import NARROWEST, Page, columns
from .source import expressions
from .source.patch import Sheet

MOST_BLOCKS = 10


# ---------------------------------------------------------------- JSON


def to_json(recording: Recording, findings: Sequence[Finding]) -> dict[str, Any]:
    """The report as plain data, schema 1.

    Keys: ``schema``; ``meta`` (torch, python, ops, steps); ``not_seen``, sentences; ``findings``, each with the fields of
    ``records.Finding`` by the same names (a flow's step has ``from`` for ``source``; a place is spelled out, its columns
    counted from 1); ``operators``, each with the fields of ``render.census.OperatorRow``.
    """
    return {
        "schema": SCHEMA,
        "meta": to_plain(recording.meta),
        "not_seen": list(recording.not_seen),
        "findings": [to_plain(f) for f in findings],
        "operators": census.plain(recording),
    }


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes a whole file or none: a second Ctrl-C or a full disk leaves what was there."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_html(
    path: str | os.PathLike,
    recording: Recording,
    findings: Sequence[Finding],
    *,
    source: bool = True,
    retraining: Any = None,
) -> None:
    """Writes the HTML report, one file that loads nothing. ``source=False`` leaves the program's text out; ``retraining`` is
    a ``Retraining`` to show in it."""
    from .render import html_report

    write_atomically(path, html_report.render(recording, findings, source=source, retraining=retraining))


def write_json(path: str | os.PathLike, recording: Recording, findings: Sequence[Finding]) -> None:
    write_atomically(path, json.dumps(to_json(recording, findings), indent=1))


# ---------------------------------------------------------------- console


def console(trace: Any, file: IO[str] | None = None) -> None:
    """Prints the findings of a trace: coloured on a terminal, plain when piped, ASCII where the stream needs it."""
    from rich.console import Console
    from rich.text import Text

    stream = file or sys.stderr
    out = Console(file=stream, highlight=False, soft_wrap=True, emoji=False, markup=False)
    told = os.environ.get("COLUMNS", "")  # a pipe has no width of its own
    width = out.width if out.is_terminal else int(told) if told.isdecimal() and int(told) else Page.width
    page = Page(max(width, NARROWEST), getattr(stream, "encoding", None) or "utf-8")
    for line, style in lines(trace.recording, trace.findings, page):
        shown = Text(line, style=style)
        shown.highlight_regex(_GUTTER, "blue")
        out.print(shown)


_GUTTER = r"^ *(?:-->|:::|=|\d* \|)"


def text(recording: Recording, findings: Sequence[Finding], width: int = Page.width) -> str:
    """The console text without colours, ``width`` columns wide."""
    return "\n".join(line for line, _ in lines(recording, findings, Page(width)))


def lines(recording: Recording, findings: Sequence[Finding], page: Page = Page()) -> list[tuple[str, str]]:
    """The console text as (line, style) pairs."""
    found: list[tuple[str, str]] = []
    for finding in findings[:MOST_BLOCKS]:
        found += _block(page, recording, finding)
        found.append(("", ""))
    if len(findings) > MOST_BLOCKS:
        found.append((f"{len(findings) - MOST_BLOCKS} more in the report", "dim"))
    found += _styled(page.wrapped("", _summary(recording, findings)), "bold" if findings else "dim")
    for reason in recording.not_seen:
        found += _styled(page.wrapped("not seen: ", reason), "dim")
    return found


def _styled(lines: Iterable[str], style: str) -> list[tuple[str, str]]:
    return [(line, style) for line in lines]


def _summary(recording: Recording, findings: Sequence[Finding]) -> str:
    steps, ops = recording.meta.get("steps", 0), recording.meta.get("ops", 0)
    over = f"in {steps} step{'s' if steps != 1 else ''} ({ops:,} op{'s' if ops != 1 else ''})"
    if not findings:
        return f"dtypetrace: no dtype problem found {over}"
    counts = {level: sum(f.severity == level for f in findings) for level in ("error", "warning", "note")}
    told = ", ".join(f"{n} {level}{'s' if n != 1 else ''}" for level, n in counts.items() if n)
    return f"{told} {over}. What it means: dtypetrace explain {findings[0].code}"


_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def _block(page: Page, recording: Recording, f: Finding) -> list[tuple[str, str]]:
    times = f" ({f.count} times)" if f.count > 1 else ""
    block = _styled(page.wrapped("", f"{f.severity}[{f.code}]: {f.title}{times}"), _STYLES[f.severity])
    block += _styled(_header(page, f), "")
    labels = wording.labels(f)
    # a place in another file than the heading's says so; its number is wide enough for the edits' lines, too
    numbers = [frame.line for frame, _ in labels] + [edit.end[0] for edit in (f.fix.edits if f.fix else ())]
    margin = max((len(str(number)) for number in numbers), default=2)
    gutter = " " * margin
    block.append((f"{gutter} |", ""))
    file, above = f.site.user_frame.file if f.site.user_frame else "", None
    for number, (frame, label) in enumerate(labels):
        if frame.file != file:
            block += _styled(page.wrapped("  ::: ", f"{wording.relative(frame.file)}:{frame.line}"), "")
        file, span = frame.file, _span(page, recording, frame, margin)
        block += _source_lines(page, recording, span, label, "-" if number else "^", margin, above)
        above = span
    block.append((f"{gutter} |", ""))
    notes = [*wording.operand_notes(f), *f.notes]
    if f.exception:
        notes.append(f"torch raised {f.exception.type}: {_one_line(f.exception.message)}")
    for note in notes:
        block += _styled(page.wrapped(f"{gutter} = note: ", note), "")
    if f.fix:
        at = f" ({wording.at(f.fix.place)})" if f.fix.place.stack else ""
        block += _styled(page.wrapped("help: ", f.fix.why + at), "green")
        for edit in _joined(recording, f.fix.edits):
            block += _changed_lines(page, recording, edit, margin)
        for other in f.fix.alternatives:
            block += _styled(page.wrapped("  or: ", other), "green")
    else:
        block.append((f"help: dtypetrace explain {f.code}", "green"))
    return block


def _header(page: Page, f: Finding) -> list[str]:
    """Where it hurts, in which module and phase: on one line where that fits."""
    phase = f"({f.phase})" if f.phase != "other" else ""
    at, rest = wording.at(f.site), "   ".join(part for part in (f.module, phase) if part)
    whole = page.printable("  --> " + "   ".join(part for part in (at, rest) if part))
    if columns(whole) <= page.width or not rest:
        return [whole] if columns(whole) <= page.width else page.wrapped("  --> ", at)
    return page.wrapped("  --> ", at) + page.wrapped("      ", rest)


@dataclass(frozen=True)
class _Span:
    """A line of code as it is shown, and where in it (in columns) the marks stand."""

    frame: Frame
    line: str
    before: int
    marks: int


def _span(page: Page, recording: Recording, frame: Frame, margin: int) -> _Span:
    written = recording.line(frame.file, frame.line)
    room = page.width - margin - 3
    if columns(page.printable(written)) > room:
        written = _code(written)
    begin = (frame.column or 1) - 1
    end = (frame.end_column or 1) - 1 if frame.end_line == frame.line else len(_code(written))
    begin = begin if begin < len(written) else len(written) - len(written.lstrip())
    head, span = page.printable(written[:begin]), page.printable(written[:end])
    line, begin, end = page.clipped(page.printable(written), len(head), max(len(span), len(head) + 1), room)
    return _Span(frame, line, columns(line[:begin]), max(1, columns(line[begin:end])))


def _source_lines(
    page: Page, recording: Recording, span: _Span, label: str, mark: str, margin: int, above: _Span | None
) -> list[tuple[str, str]]:
    """The line (unless it was just shown) and below it the marked span with its label."""
    frame, before, marks = span.frame, span.before, mark * span.marks
    number, gutter, style = str(frame.line).rjust(margin), f"{' ' * margin} | ", "red" if mark == "^" else "yellow"
    room = page.width - margin - 3
    if not span.line.strip():
        return _styled(page.wrapped(f"{number} | ", f"(no source) {label}", gutter), style)
    again = above is not None and (frame.file, frame.line, span.line) == (
        above.frame.file,
        above.frame.line,
        above.line,
    )
    shown = [] if again else [*_lead(page, recording, frame, margin), (f"{number} | {span.line}", "")]
    label = page.printable(label)
    if before + len(marks) + 1 + columns(label) <= room:
        return [*shown, (f"{gutter}{' ' * before}{marks} {label}", style)]
    # below the marks, from where they begin; further left where too little room would remain
    if not (again and (before, len(marks)) == (above.before, above.marks)):
        shown.append((f"{gutter}{' ' * before}{marks}", style))
    indent = gutter + " " * max(0, min(before, room - _LABEL))
    return [*shown, *_styled(page.wrapped(indent, label, indent), style)]


_LABEL = 40
"""Columns that a label below its marks has at least."""


def _lead(page: Page, recording: Recording, frame: Frame, margin: int) -> list[tuple[str, str]]:
    """The line on which an expression begins that goes on over several, where the marked one is no more than its end."""
    before = recording.line(frame.file, frame.line)[: (frame.column or 1) - 1]
    node = expressions.expression_at(frame) if recording.sources is None and not before.strip(" \t)]}.") else None
    if node is None or node.lineno >= frame.line:
        return []
    return _begun(page, recording, frame.file, node.lineno, frame.line, margin)


def _begun(page: Page, recording: Recording, file: str, begin: int, line: int, margin: int) -> list[tuple[str, str]]:
    """The line on which something begins that goes on to another line."""
    first, _, _ = page.clipped(page.printable(recording.line(file, begin)), 0, 1, page.width - margin - 3)
    between = [(f"{'.' * 3:>{margin}}", "blue")] if line - begin > 1 else []
    return [(f"{str(begin).rjust(margin)} | {first}", ""), *between]


def _code(line: str) -> str:
    """A line without the comment at its end."""
    try:
        for token in tokenize.generate_tokens(iter([line]).__next__):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError, StopIteration):  # a part of a statement: what is read by then counts
        pass
    return line.rstrip()


def why_text(chains: Sequence[Chain]) -> str:
    """The answer of ``why`` as text: one paragraph a tensor, those of the same story together."""
    stories: dict[tuple, list[str]] = {}
    for c in chains:
        stories.setdefault((c.dtype, c.origin.kind, c.flow), []).append(c.name)
    text = []
    for (dtype, kind, flow), names in stories.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        text.append(f"{', '.join(names[:3])}{more}: {dtype}")
        for index, step in enumerate(flow):
            told = (
                f"{step.how if index else kind} by {step.op}"
                if step.op
                else "was there before the watching began"
                if index == 0
                else step.how
            )
            widened = f", {step.source} -> {step.to}" if step.source != step.to else ""
            text.append(
                f"  {'born' if index == 0 else 'then'}: {told}{widened}{f' from {step.via}' if step.via else ''}  {wording.at(step.place)}"
            )
    return "\n".join(text)


def _joined(recording: Recording, edits: Sequence[Edit]) -> Iterator[Edit]:
    """The edits in order, those that change the same lines as one: a line is shown as it is in the end."""
    groups: list[list[Edit]] = []
    for edit in edits:
        last = groups[-1] if groups else ()
        apart = (
            not last
            or edit.file != last[0].file
            or edit.start[0] > max(e.end[0] for e in last)
            or edit.end[0] < min(e.start[0] for e in last)
        )
        groups[-1:] = [*groups[-1:], [edit]] if apart else [[*last, edit]]
    for group in groups:
        first, end = min(e.start[0] for e in group), max(e.end[0] for e in group)
        before = "\n".join(recording.line(group[0].file, number) for number in range(first, end + 1))
        sheet = Sheet(group[0].file, before, "", "")
        moved = (
            replace(e, start=(e.start[0] - first + 1, e.start[1]), end=(e.end[0] - first + 1, e.end[1])) for e in group
        )
        changes = [sheet.locate(e) for e in moved] if len(group) > 1 else [None]
        if None in changes or not all(sheet.add(change, order) for order, change in enumerate(changes)):
            yield from group
        else:
            yield Edit(group[0].file, (first, 1), (end, len(before.rpartition("\n")[2]) + 1), before, sheet.text)


def _changed_lines(page: Page, recording: Recording, edit: Edit, margin: int) -> list[tuple[str, str]]:
    """The lines that an edit touches, as they read after it, what is new underlined."""
    before = tuple(recording.line(edit.file, number) for number in range(edit.start[0], edit.end[0] + 1))
    if not any(before):
        return []
    after = (before[0][: edit.start[1] - 1] + edit.after + before[-1][edit.end[1] - 1 :]).split("\n")
    changed = [(number, new) for number, new in enumerate(after) if number >= len(before) or new != before[number]]
    gutter, room = f"{' ' * margin} | ", page.width - margin - 3
    lines = [(gutter.rstrip(), "")]
    if changed and changed[0][0]:  # what the changed line is the end of
        lines += _begun(page, recording, edit.file, edit.start[0], edit.start[0] + changed[0][0], margin)
    for number, new in changed[:4]:
        marks = _marks(page, before[number] if number < len(before) else "", new)
        if columns(page.printable(new)) > room:
            new = _code(new)
        begin, end = len(marks) - len(marks.lstrip()), len(marks)
        line, *span = page.clipped(page.printable(new), begin, max(end, begin + 1), room)
        if columns(page.printable(new)) > room:
            mark = "+" if set(marks.strip()) == {"+"} else "~"
            marks = " " * columns(line[: span[0]]) + mark * columns(line[span[0] : span[1]])
        lines.append((f"{str(edit.start[0] + number).rjust(margin)} | {line}", "green"))
        if marks.strip():  # nothing is new where something was only taken out
            lines.append((gutter + marks, "green"))
    return lines


def _marks(page: Page, old: str, new: str) -> str:
    """What stands under a changed line: ``+`` below what is new, ``~`` below what takes another's place."""
    words = [_WORD.findall(old), _WORD.findall(new)]
    # what both end with is the same text, whatever else would match: of two brackets the outer one was there
    tail = next((n for n, (a, b) in enumerate(zip(*map(reversed, words))) if a != b), min(map(len, words)))
    head = next((n for n, (a, b) in enumerate(zip(*words)) if a != b), min(map(len, words)))
    tail = min(tail, min(map(len, words)) - head)
    marks = " " * columns(page.printable("".join(words[1][:head])))
    middle = [part[head : len(part) - tail] for part in words]
    for how, _, _, begin, end in difflib.SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
        marks += {"equal": " ", "insert": "+", "replace": "~", "delete": ""}[how] * columns(
            page.printable("".join(middle[1][begin:end]))
        )
    return marks.rstrip()


_WORD = re.compile(r"\w+|\W")


def _one_line(message: str) -> str:
    first = " ".join(message.split())
    return first if len(first) <= 200 else first[:197] + "..."


def notes_for(finding: Finding) -> list[str]:
    """Three short notes for the exception that leaves: what and where born, where it meets, what to change."""
    notes = [f"dtypetrace {finding.code}: {finding.title}"]
    if finding.culprit is not None:
        origin = finding.culprit.origin
        born = f", born at {wording.at(origin.place)} ({origin.kind})" if origin.place.stack else ""
        notes.append(f"dtypetrace: {finding.culprit.shown} is {finding.culprit.dtype}{born}")
    if finding.fix is not None:
        notes.append(f"dtypetrace help: {finding.fix.why}")
    return notes
