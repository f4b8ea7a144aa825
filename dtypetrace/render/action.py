"""The first screen of the report: the line to change with its diff, why, what happens if it stays, and the run's
facts."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..parts import attempt
from ..records import NO_CHANGE, Edit, Finding, Frame, Place, Recording
from ..tables.english import capitalised, listed
from . import coverage, wording
from .cards import changes_of
from .edits import DiffBlock, file_of

_LONGEST_CODE = 60
"""Characters of an expression in the headline."""
_LONGEST_MESSAGE = 300
_Piece = tuple[str, bool]
"""A piece of a headline, and whether it is code."""


_MEANS = {
    "DT306": "The step rounds these gradients to their weights' dtype. DDP and fused optimizers refuse them.",
    "DT305": "These weights get no gradient, so nothing trains them.",
    "DT202": "Two needless copies at each call; the numbers stay the same.",
}
"""What happens if nothing is changed, where the finding's own words say only what was seen."""


@dataclass(frozen=True)
class Spot:
    """A line that an editor can open: ``file`` is absolute, ``shown`` is how the page writes it."""

    file: str
    line: int
    column: int
    shown: str


@dataclass
class Action:
    """What to do, as the first screen says it."""

    headline: list[_Piece]
    tone: str
    code: str = ""
    anchor: str = ""
    steps: list[str] = field(default_factory=list)
    """The lines to type, one change each."""
    changes: list[DiffBlock] = field(default_factory=list)
    where: Spot | None = None
    why: list[str] = field(default_factory=list)
    otherwise: str = ""
    tried: str = ""
    change: bool = True
    """Whether there is something to change."""
    raised: bool = False
    """Whether ``otherwise`` is an exception's message."""
    more: str = ""
    """How many findings there are besides this one, and where."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.headline)


def action(recording: Recording, findings: Sequence[Finding], anchor: str, *, source: bool = True) -> Action:
    """The action for the first finding, or that nothing has to be done."""
    if not findings:
        unjudged = coverage.not_judged_line(recording)
        return Action(
            [(sentence(coverage.nothing_found(recording)), False)],
            "clean",
            why=[sentence(unjudged)] if unjudged else [],
        )
    first = findings[0]
    changes: list[DiffBlock] = attempt("the first screen's diff", lambda: changes_of(recording, first), [])
    headline, steps, why = _headline(recording, first, changes if source else [])
    change = first.severity != "note" or first.fix is None or bool(first.fix.edits or first.fix.lines)
    spot = _spot_of(first) if source else None
    if spot is not None and change and not changes:  # what is there to be changed
        text = recording.line(spot.file, spot.line)
        shown = DiffBlock(spot.shown, [(" ", text)], [spot.line], "", spot.file, spot.line, spot.column)
        changes = [shown] if text else []
    otherwise: str = attempt("what happens if nothing is changed", lambda: _otherwise(first), "")
    told = first.tried if first.tried is not None and first.fix is not None else None
    if told is not None and not told.missing and told.unit != "step":
        without, wider = wording.trial(told, first)
        if otherwise and not (told.unit == "merged" and "%" in otherwise):  # the trial's own share says that
            why.append(otherwise)
        otherwise, tried = sentence(without), sentence(f"tried: {wider}")
    else:
        tried = sentence(wording.tried(first)[0]) if told is not None else ""
    return Action(
        headline,
        first.severity,
        first.code,
        anchor,
        steps,
        changes if source else [],
        spot,
        why,
        otherwise,
        tried,
        change=change,
        raised=first.exception is not None,
        more=_more(recording, [f for f in findings[1:] if not _goes_too(f, first)]),
    )


def _goes_too(other: Finding, first: Finding) -> bool:
    """Whether all lines to type against another finding are among those against the first one."""
    lines = set(other.fix.lines) if other.fix is not None else set()
    return first.fix is not None and bool(lines) and lines <= set(first.fix.lines)


def _more(recording: Recording, others: Sequence[Finding]) -> str:
    ask = [f for f in others if f.fix is None or f.fix.kind != NO_CHANGE]
    if others and not ask:
        return f"{len(others)} more finding{'s' if len(others) > 1 else ''}, nothing to change"
    others = ask
    places = list(dict.fromkeys(filter(None, (_short(f.site) for f in others))))
    if len(others) == 1:
        what, at = _change_of(others[0])
        return f"1 more finding needs its own change: {what}{f' ({at})' if at else ''}"
    rest = [f"{len(places) - 2} more"] if len(places) > 2 else []
    at = f", at {listed([*places[:2], *rest])}" if places else ""
    return f"{len(others)} more findings need their own changes{at}" if others else ""


def _change_of(f: Finding) -> tuple[str, str]:
    """What one of the other findings needs, and at which line; where it has no change, what it is."""
    if f.fix is None:
        return f.title, _short(f.site)
    edit = next(iter(f.fix.shown_edits), None)
    return f.fix.instruction, f"{os.path.basename(edit.file)}:{edit.start[0]}" if edit is not None else _short(
        f.fix.place
    )


def _headline(
    recording: Recording, f: Finding, changes: Sequence[DiffBlock]
) -> tuple[list[_Piece], list[str], list[str]]:
    """The headline, the changes that it lists where no diff shows them, and the sentences below it."""
    title = sentence(f.title)
    if f.fix is None:
        return [(title, False)], [], []
    reason = [sentence(f.fix.reason.lstrip(":. "))] if f.fix.reason else []
    if edits := f.fix.shown_edits:
        edit = edits[0]
        lead: list[_Piece] = [
            ("Change ", False), (wording.relative(edit.file), True), (f" {_lines(edits, changes)}: ", False)
        ]  # fmt: skip
        needed = _needed(edits)
        made = _made(recording, f, edit) if changes and (needed or not edit.before) else ""
        if made:
            but = f", but {needed} is needed" if needed not in ("", f.flow[0].to) else ""
            return (
                [*lead, (made, True), (f" makes {f.flow[0].to}{but}", False)],
                [],
                [sentence(f.fix.why), title],
            )
        return [*lead, (f.fix.instruction, False)], [] if changes else list(f.fix.lines), [*reason, title]
    change = wording.instruction(f.fix)
    return [(change[:1].upper() + change[1:], False)], list(f.fix.lines), [*reason, title]


def _lines(edits: Sequence[Edit], changes: Sequence[DiffBlock]) -> str:
    """``line 3``, or all lines that the changes in the first one's file begin at."""
    begin = [(block.path, block.line) for block in changes]
    if len(begin) < len(edits):  # one diff shows several
        begin = [(edit.file, edit.start[0]) for edit in edits]
    numbers = [str(line) for line in dict.fromkeys(line for file, line in begin if file == begin[0][0])]
    return f"line{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _made(recording: Recording, f: Finding, edit: Edit) -> str:
    """The expression that makes the wrong dtype, if it is on the line that changes; else empty."""
    frame = f.flow[0].place.user_frame if f.flow and not f.flow[0].said else None
    if frame is None or not frame.column or not frame.end_column or frame.end_line != frame.line:
        return ""
    if frame.file != edit.file or f.culprit is None or f.culprit.dtype.startswith("python"):
        return ""
    if not (frame.line, frame.column) <= edit.start <= edit.end <= (frame.line, frame.end_column):
        return ""  # what is cast is more than this expression
    text = recording.line(frame.file, frame.line)[frame.column - 1 : frame.end_column - 1]
    return text if 0 < len(text) <= _LONGEST_CODE and f.flow[0].to else ""


def _needed(edits: Sequence[Edit]) -> str:
    """The dtype that an edit writes; empty where it writes none."""
    change = edits[0].change
    return change.dtype if not change.like else ""


def sentence(text: str) -> str:
    return capitalised(text) + ("" if text.endswith((".", "!", "?")) else ".")


def _otherwise(f: Finding) -> str:
    """What happens where nothing is changed."""
    if f.exception is not None:
        message = " ".join(f.exception.message.split())
        message = message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
        at = f" at {_short(f.site)}" if f.site.stack else ""
        return f"{f.exception.type}{at}: {message}"
    if f.code in _MEANS:
        return _MEANS[f.code] if f.flow else ""
    if f.code == "DT401" and f.culprit is not None:
        harm = {"bfloat16": "float16, which overflows above 65504", "float16": "bfloat16, which keeps fewer digits"}
        to = harm.get(f.culprit.dtype, "another dtype")
        return f"Each call of a matmul or a convolution casts its weight from {f.culprit.dtype} to {to}."
    if f.notes and (f.reach is not None or f.kind == "lost-update" or f.code == "DT206"):  # how much is lost
        return sentence(f.notes[0])
    if not f.flow:
        return ""
    last = f.flow[-1]
    if not last.said:
        return ""
    label = wording.label(f, last, len(f.flow) - 1, len(f.flow) - 1)
    if f.site.user_frame is None:
        return sentence(label)
    return sentence(f"at {_short(f.site)}, {label}")


def _short(place: Place) -> str:
    user = place.user_frame
    return f"{wording.relative(user.file)}:{user.line}" if user is not None else ""


# ---------------------------------------------------------------- places that an editor opens


def spot(frame: Frame | None) -> Spot | None:
    """Where an editor opens a frame; None for what is no file (a notebook's cell, code from a string)."""
    if frame is None or not file_of(frame.file):
        return None
    return Spot(frame.file, frame.line, frame.column or 1, f"{wording.relative(frame.file)}:{frame.line}")


def _spot_of(f: Finding) -> Spot | None:
    if f.fix is not None and f.fix.edits:
        edit = f.fix.edits[0]
        return spot(Frame(edit.file, edit.start[0], "", True, edit.start[1]))
    if f.fix is not None and f.fix.lines and f.fix.named.stack:  # the first of several changes
        return spot(f.fix.named.user_frame)
    return spot((f.fix.place if f.fix is not None else f.site).user_frame) or spot(f.site.user_frame)


# ---------------------------------------------------------------- the run


def facts(recording: Recording, distinct: int) -> list[str]:
    """The run in a line: what ran, when, how long, in which versions."""
    meta = recording.meta
    if not meta:
        return []
    script, arguments = str(meta.get("script", "")), str(meta.get("arguments", ""))
    ran = f"{wording.relative(script)} {arguments}".strip() if script else ""
    started, took = str(meta.get("started", "")), meta.get("milliseconds", 0)
    steps, ops = coverage.steps(recording), meta.get("ops", 0)
    counted = [steps or "no optimizer step"] if steps or ops else []
    if ops:
        counted.append(f"{ops:,} ops watched, {distinct:,} distinct")
    parameters = _sizes(recording)
    version = importlib.import_module("dtypetrace").__version__  # importing it by name would reach torch
    versions = [f"{name} {meta[key]}" for name, key in (("torch", "torch"), ("Python", "python")) if meta.get(key)]
    return [
        part
        for part in (
            ran,
            started.replace("T", " "),
            _duration(took) if started else "",
            *counted,
            f"parameters and buffers: {parameters}" if parameters else "",
            *coverage.work_parts(recording)[:1],
            *versions,
            f"dtypetrace {version}",
        )
        if part
    ]


def _duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _sizes(recording: Recording) -> str:
    sizes: Counter[str] = Counter()
    for p in recording.parameters:
        sizes[p.dtype] += p.size
    return ", ".join(f"{amount(n)} {dtype}" for dtype, n in sizes.most_common(4))


def amount(number: float) -> str:
    """Three digits and a letter: ``860 M``."""
    number = min(number, 10**300)  # a damaged trace may say anything
    for size, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 0.9995 * size:  # three digits would be those of the next letter
            return f"{number / size:.3g} {letter}"
    return f"{number:g}"


def size(number: float) -> str:
    """The same of bytes: ``860 MB``."""
    text = amount(number)
    return f"{text}B" if " " in text else f"{text} B"
