"""The console text: one block for each finding, a last line that says what to do, what was not seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import IO, Any

from ..parts import attempt, collected
from ..records import NO_CHANGE, UNWATCHED, Chain, Finding, FlowStep, Recording
from ..tables.english import some, subject
from ..tables.operators import result_bytes
from ..terminal import seen, width
from . import coverage, wording
from .edits import joined
from .excerpt import Excerpt, Span, StyledLine, styled
from .layout import Display, columns

MOST_BLOCKS = 10
"""Findings that are printed: more would scroll the first ones off the screen."""
_MOST_NAMED = 3
"""Tensors with the same chain that ``why`` names; the others are counted."""
_LONGEST_MESSAGE = 200
"""Characters of torch's own message that are shown: its sentence, without the lists that some messages append."""
_IDLE = 0.01
"""The share of all results up to which a note that asks for no change is not worth reading."""
_GUTTER = r"^ *(?:-->|:::|=|\d* \|)"
_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def console(trace: Any, file: IO[str] | None = None, *, program: str = "", idle: bool = False) -> None:
    """Prints the findings of a trace: coloured on a terminal, plain when piped, ASCII where the stream needs it.

    ``program``: what to type after ``dtypetrace fix`` to repair the traced program; the last line says it. ``idle``:
    idle notes, too.
    """
    stream = file or sys.stderr
    if _only_plain(stream):
        shown = lines(trace.recording, trace.findings, _display(stream), program, idle)
        print("\n".join(line for line, _ in shown), file=stream)
        return
    from rich.console import Console
    from rich.text import Text

    # rich itself does not bear every width and height that the environment may name
    out = Console(
        file=stream, width=width(stream), height=1, highlight=False, soft_wrap=True, emoji=False, markup=False
    )
    for line, style in lines(trace.recording, trace.findings, _display(stream), program, idle):
        styled_line = Text(line, style=style)
        styled_line.highlight_regex(_GUTTER, "blue")
        out.print(styled_line)


def _only_plain(stream: Any) -> bool:
    """Whether rich would print plain text there. It takes a while to import, and a pipe has no colours."""
    wanted = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    terminal = getattr(stream, "isatty", bool)()
    return not wanted and not terminal and "IPython" not in sys.modules


def _display(stream: Any) -> Display:
    return Display(width(stream), getattr(stream, "encoding", None) or "utf-8")


def text(recording: Recording, findings: Sequence[Finding], width: int = Display.width) -> str:
    """The console text without colours, ``width`` columns wide."""
    return "\n".join(line for line, _ in lines(recording, findings, Display(width)))


def lines(
    recording: Recording,
    findings: Sequence[Finding],
    display: Display | None = None,
    program: str = "",
    idle: bool = True,
) -> list[StyledLine]:
    """The console text as (line, style) pairs. ``program`` and ``idle`` are as in ``console``."""
    display = display or Display()
    found: list[StyledLine] = []
    told = [f for f in findings if idle or not is_idle(recording, f)]
    with collected() as failed:
        for finding in told[:MOST_BLOCKS]:
            title = [(display.printable(f"{finding.severity}[{finding.code}]: {finding.title}"), "")]
            found += attempt(f"the text of {finding.code}", partial(block, display, recording, finding), title)
            found.append(("", ""))
    if len(told) > MOST_BLOCKS:
        found.append((f"{len(told) - MOST_BLOCKS} more in the report", "dim"))
    if left := len(findings) - len(told):
        found.append(
            (f"{left} note{'s' if left > 1 else ''} about what costs almost nothing: on the page (--html)", "dim")
        )
    for reason in (*recording.not_seen, *failed):
        found += styled(display.wrapped("not seen: ", reason), "dim")
    if which := coverage.watched(recording):
        found += styled(display.wrapped("", which), "dim")
    worked = styled(display.wrapped("", coverage.work_line(recording)), "dim") if coverage.work_line(recording) else []
    summed = styled(display.wrapped("", summary(recording, findings)), "bold" if findings else "dim")
    found += [*worked, *summed] if findings else [*summed, *worked]
    if (not findings or coverage.compiled(recording)) and (unjudged := coverage.not_judged_line(recording, program)):
        found += styled(display.wrapped("", unjudged), "dim")
    for step in next_steps(recording, told or findings, program):
        found.append((display.printable(step), "bold"))  # a command is never wrapped, so that it can be copied
    return found


def is_idle(recording: Recording, finding: Finding) -> bool:
    """Whether a finding asks for no change and costs almost nothing: a note whose reach is below a hundredth of the
    bytes that the run's results take."""
    if finding.severity != "note" or finding.fix is None or finding.fix.kind != NO_CHANGE:
        return False
    reach = finding.reach.bytes if finding.reach is not None else 0
    return reach <= _IDLE * sum(result_bytes(op) * op.count for op in recording.ops)


def summary(recording: Recording, findings: Sequence[Finding]) -> str:
    """How many findings of each severity, in how many steps and ops."""
    ops = recording.meta.get("ops", 0)
    over = f"({ops:,} op{'s' if ops != 1 else ''})"
    if steps := coverage.steps(recording):
        over = f"in {steps} {over}"
    ranks = str(recording.meta.get("ranks", "")).split(", ")
    if len(ranks) > 1:
        over = f"on {len(ranks)} ranks; on rank {ranks[0]} {over}"
    if not findings:
        return f"dtypetrace: {coverage.nothing_found(recording)} {over}"
    counts = {level: sum(f.severity == level for f in findings) for level in ("error", "warning", "note")}
    found = ", ".join(f"{n} {level}{'s' if n != 1 else ''}" for level, n in counts.items() if n)
    return f"{found} {over}"


def next_steps(recording: Recording, findings: Sequence[Finding], program: str = "") -> list[str]:
    """The commands to type next, the most useful one last, because the last line is read first."""
    eagerly = coverage.eagerly(recording, program)
    if not findings:
        return eagerly
    steps = [*eagerly, f"What it means: dtypetrace explain {findings[0].code}"]
    if not program:
        return steps
    if any(f.predicted for f in findings):  # `fix` would run the program for real
        return [*steps, f"After the change, check again: dtypetrace run --dry-run {program}"]
    if any(refused.healed for refused in recording.refused):
        steps.append("The casts were inserted in this run only; no file was changed")
    if unseen := _made_unwatched(recording, findings):
        start = int(recording.meta["all_steps"]) - 1 if any(refused.left for refused in recording.refused) else 1
        every = f"1:{start}" if start > 1 else "1"
        steps.append(f"Which line made {unseen}: dtypetrace run --every {every} {program}")
    elif any(refused.left for refused in recording.refused):
        meant = "shows the errors after this one, too; changes no file"
        steps.append(f"More may follow: dtypetrace run --autofix {program}  # {meant}")
    if any(
        f.severity == "error"
        and (f.kind == "collision" or f.phase == "optimizer")
        or f.severity == "warning"
        and f.fix is not None
        and f.fix.shown_edits  # it runs what is shown here
        for f in findings
    ):
        steps.append(f"Fix it: dtypetrace fix {program}")
    return steps


def _made_unwatched(recording: Recording, findings: Sequence[Finding]) -> str:
    """The name of a wrong tensor that was made in a step that was not watched, on a line that is not known."""
    for f in findings if "all_steps" in recording.meta else ():
        if f.culprit is None:
            continue
        origin = f.culprit.origin
        if origin.op == UNWATCHED and origin.place.line == f.site.line:
            return subject(f.culprit, f.op, f.phase, f.site)
    return ""


# ---------------------------------------------------------------- one finding


def block(display: Display, recording: Recording, f: Finding) -> list[StyledLine]:
    labels = wording.labels(f)
    # the gutter must also be wide enough for the line numbers of the edits
    numbers = [frame.line for frame, _ in labels] + [edit.end[0] for edit in (f.fix.edits if f.fix else ())]
    excerpt = Excerpt(display, recording, max((len(str(number)) for number in numbers), default=2))
    bar = (excerpt.gutter.rstrip(), "")
    return [
        *styled(display.wrapped("", f"{f.severity}[{f.code}]: {f.title}{wording.times(f)}"), _STYLES[f.severity]),
        *styled(_header(display, f), ""),
        bar,
        *attempt(f"the source lines of {f.code}", lambda: _source(excerpt, f), ()),
        bar,
        *attempt(f"the notes of {f.code}", lambda: _notes(excerpt, f), ()),
        *attempt(f"the help of {f.code}", lambda: _help(excerpt, f), ()),
    ]


def _header(display: Display, f: Finding) -> list[str]:
    """Where the problem appears, in which module and phase: on one line if that fits."""
    phase = f"({f.phase})" if f.phase != "other" else ""
    at, rest = wording.at(f.site), "   ".join(part for part in (wording.module(f.module), phase) if part)
    whole = display.printable("  --> " + "   ".join(part for part in (at, rest) if part))
    if columns(whole) <= display.width or not rest:
        return [whole] if columns(whole) <= display.width else display.wrapped("  --> ", at)
    return display.wrapped("  --> ", at) + display.wrapped("      ", rest)


def _source(excerpt: Excerpt, f: Finding) -> list[StyledLine]:
    """The labelled lines; if a line is in another file than the one above it, the file is named."""
    shown: list[StyledLine] = []
    file = f.site.user_frame.file if f.site.user_frame else ""
    above: Span | None = None
    for number, (frame, label) in enumerate(wording.labels(f)):
        if frame.file != file:
            at = f"{wording.relative(frame.file)}:{frame.line}"
            shown += styled(excerpt.display.wrapped("  ::: ", at), "")
        file, span = frame.file, excerpt.span(frame, above)
        shown += excerpt.labelled(span, label, "-" if number else "^", above)
        above = span
    return shown


def _notes(excerpt: Excerpt, f: Finding) -> list[StyledLine]:
    notes = [*wording.operand_notes(f), *f.notes, *wording.tried(f)]
    if f.exception:
        notes.append(f"torch raised {f.exception.type}: {_one_line(f.exception.message)}")
    head = f"{' ' * excerpt.margin} = note: "
    return [line for note in notes for line in styled(excerpt.display.wrapped(head, note), "")]


def _help(excerpt: Excerpt, f: Finding) -> list[StyledLine]:
    if f.fix is None:
        return [(f"help: dtypetrace explain {f.code}", "green")]
    shown = styled(excerpt.display.wrapped("help: ", wording.help_for(f.fix)), "green")
    for number, line in enumerate(f.fix.lines, 1):  # all of them are needed
        head = f"  {number}. " if len(f.fix.lines) > 1 else "  -> "
        shown += styled(excerpt.display.wrapped(head, line), "green")
    shown += _line_to_change(excerpt, f)
    for edit in joined(excerpt.recording, f.fix.edits):
        shown += excerpt.edited(edit)
    for other in f.fix.alternatives:
        shown += styled(excerpt.display.wrapped("  or: ", other), "green")
    return shown


def _line_to_change(excerpt: Excerpt, f: Finding) -> list[StyledLine]:
    """The source of a change that is only said in words, if it is one line and no label has shown it."""
    frame = f.fix.named.user_frame if f.fix is not None else None  # which the words name, not a library's inside of it
    if f.fix is None or frame is None or f.fix.edits or len(f.fix.lines) > 1:
        return []
    if (frame.file, frame.line) in {(label.file, label.line) for label, _ in wording.labels(f)}:
        return []
    edit = f.fix.by_hand[0] if f.fix.by_hand else None
    in_line = edit is not None and edit.before and "\n" not in edit.before + edit.after
    as_it_is = excerpt.source(frame.file, frame.line, "(as it is now)")
    return excerpt.edited(edit) if edit is not None and in_line else as_it_is


def _one_line(message: str) -> str:
    first = " ".join(message.split())
    return first if len(first) <= _LONGEST_MESSAGE else first[: _LONGEST_MESSAGE - 3] + "..."


# ---------------------------------------------------------------- other texts


def why_text(chains: Sequence[Chain]) -> str:
    """The answer of ``why`` as text: one paragraph for each chain, with all tensors that have it."""
    stories: dict[tuple[Any, ...], list[str]] = {}
    for c in chains:
        stories.setdefault((c.dtype, c.origin.kind, c.flow), []).append(c.name)
    text = []
    for (dtype, kind, flow), names in stories.items():
        text.append(f"{some(names, _MOST_NAMED)}: {dtype}")
        for index, step in enumerate(flow):
            widened = f", {step.source} -> {step.to}" if step.source != step.to else ""
            event = _event(step, kind, first=not index)
            text.append(f"  {'then' if index else 'born'}: {event}{widened}  {wording.at(step.place)}")
    return "\n".join(map(seen, text))


def _event(step: FlowStep, kind: str, *, first: bool) -> str:
    """``cast by to()``, ``to() takes the dtype of sample``."""
    if step.op == UNWATCHED and first:
        return wording.UNSEEN_BIRTH
    if not step.op:
        return "existed before tracing started" if first else step.how
    owner, _, attribute = step.via.rpartition(".")
    if step.via:
        return f"{step.op}() takes {f'the dtype of {owner}' if attribute == 'dtype' and owner else step.via}"
    return f"{kind if first else step.how} by {step.op}()"


def notes_for(finding: Finding) -> list[str]:
    """Three short notes for the exception that ends the block: what happened, the line where the dtype comes from, what
    to change."""
    notes = [f"dtypetrace {finding.code}: {finding.title}"]
    first = wording.labels(finding)[:-1][:1] if finding.culprit is not None else []
    notes += [f"dtypetrace: {wording.relative(frame.file)}:{frame.line}: {label}" for frame, label in first]
    if finding.culprit is not None and not first:
        name = subject(finding.culprit, finding.op, finding.phase, finding.site)
        unseen = f", {wording.UNSEEN_BIRTH}" if finding.culprit.origin.op == UNWATCHED else ""
        notes.append(f"dtypetrace: {name} is {finding.culprit.dtype}{unseen}")
    if finding.fix is not None:
        notes.append(f"dtypetrace help: {finding.fix.words if finding.fix.lines else wording.help_for(finding.fix)}")
    return list(map(seen, notes))
