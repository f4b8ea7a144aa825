"""Source lines on the console: numbered, with a marked span and its label below, or as they are after an edit."""

from __future__ import annotations

import difflib
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..records import Edit, Frame, Recording
from ..source.patch import PatchedFile
from .layout import CUT, Display, columns

StyledLine = tuple[str, str]
"""One line of text, and rich's name of its style."""

_LEAST_LABEL = 40
"""The least number of columns for a label below its marks: narrower text is hard to read."""
_LEAST_AROUND = 6
"""The least number of columns of unchanged text beside a change, where its line is cut."""
_MOST_CHANGED_LINES = 4
"""Lines of one edit that are printed: enough for a call written over several lines."""
_LEAST_SHOWN = 4
"""Lines at each end of a block that are shown where it is removed and added as a whole."""
_WORD = re.compile(r"\w+|\W")


@dataclass(frozen=True)
class Span:
    """A line of code as it is shown, and which of its columns are marked."""

    frame: Frame
    line: str
    before: int
    marks: int

    def same_line(self, other: Span) -> bool:
        return (self.frame.file, self.frame.line, self.line) == (other.frame.file, other.frame.line, other.line)


@dataclass(frozen=True)
class Excerpt:
    """How lines of one recording's source are shown: the display, and the columns that line numbers take."""

    display: Display
    recording: Recording
    margin: int

    @property
    def gutter(self) -> str:
        return f"{' ' * self.margin} | "

    @property
    def room(self) -> int:
        """Columns left for code."""
        return self.display.width - len(self.gutter)

    def _numbered(self, number: int, line: str) -> str:
        return f"{str(number).rjust(self.margin)} | {line}"

    def _fits(self, line: str) -> bool:
        return columns(self.display.printable(line)) <= self.room

    def _cut(self, line: str) -> str:
        """A line's beginning, as far as it fits."""
        return self.display.clipped(self.display.printable(line), 0, 1, self.room)[0]

    def _signed(self, number: int, sign: str, shown: str) -> str:
        return f"{str(number).rjust(self.margin)} {sign} {shown}".rstrip()

    # ------------------------------------------------------------ labelled spans

    def span(self, frame: Frame, above: Span | None = None) -> Span:
        """The line of a frame, cut so that its span is visible; or as the span above it shows the same line, if its own
        begins there."""
        written = self.recording.line(frame.file, frame.line)
        if not self._fits(written):
            written = _without_comment(written)
        indented = len(written) - len(written.lstrip())
        begin = frame.column - 1 if frame.column else indented  # without a column: the whole line
        end = (frame.end_column or 1) - 1 if frame.end_line == frame.line else len(_without_comment(written))
        begin = begin if begin < len(written) else len(written) - len(written.lstrip())
        head, span = self.display.printable(written[:begin]), self.display.printable(written[:end])
        if above is not None and (above.frame.file, above.frame.line) == (frame.file, frame.line):
            begins = above.line.removesuffix(CUT)
            if columns(head) < columns(begins) and self.display.printable(written).startswith(begins):
                visible = min(columns(span), columns(above.line)) - columns(head)
                return Span(frame, above.line, columns(head), max(1, visible))
        line, begin, end = self.display.clipped(
            self.display.printable(written), len(head), max(len(span), len(head) + 1), self.room
        )
        return Span(frame, line, columns(line[:begin]), max(1, columns(line[begin:end])))

    def labelled(self, span: Span, label: str, mark: str, above: Span | None) -> list[StyledLine]:
        """The line (unless it was just shown) and below it the marked span with its label."""
        marks, style = mark * span.marks, "red" if mark == "^" else "yellow"
        if not span.line.strip():
            head = self._numbered(span.frame.line, "")
            return styled(self.display.wrapped(head, f"(no source) {label}", self.gutter), style)
        repeated = above is not None and span.same_line(above)
        shown = [] if repeated else [*self._lead(span.frame), (self._numbered(span.frame.line, span.line), "")]
        label = self.display.printable(label)
        if span.before + len(marks) + 1 + columns(label) <= self.room:
            return [*shown, (f"{self.gutter}{' ' * span.before}{marks} {label}", style)]
        # the label goes below the marks, from their first column; further left where there would be too little room
        if not (repeated and above is not None and (span.before, span.marks) == (above.before, above.marks)):
            shown.append((f"{self.gutter}{' ' * span.before}{marks}", style))
        indent = self.gutter + " " * max(0, min(span.before, self.room - _LEAST_LABEL))
        return [*shown, *styled(self.display.wrapped(indent, label, indent), style)]

    def _lead(self, frame: Frame) -> list[StyledLine]:
        """The first line of an expression over several lines, if the marked line is only its end."""
        begin = self.recording.sources.begin(frame)
        return self._first_line(frame.file, begin, frame.line) if begin is not None else []

    def _first_line(self, file: str, begin: int, line: int) -> list[StyledLine]:
        """The line on which a longer expression begins, and dots for the lines between."""
        between = [(f"{'.' * 3:>{self.margin}}", "blue")] if line - begin > 1 else []
        return [(self._numbered(begin, self._cut(self.recording.line(file, begin))), ""), *between]

    def source(self, file: str, number: int, label: str) -> list[StyledLine]:
        """One line as it is and its label, below an empty one; nothing where the text is not known."""
        text = self.recording.line(file, number)
        shown = self._cut(text)
        indent = " " * (len(shown) - len(shown.lstrip()))
        below = f"{self.gutter}{indent}{label}"
        return [(self.gutter.rstrip(), ""), (self._numbered(number, shown), ""), (below, "")] if text.strip() else []

    # ------------------------------------------------------------ edits

    def edited(self, edit: Edit) -> list[StyledLine]:
        """The lines that an edit touches, as they are after it; new text is underlined."""
        before = tuple(self.recording.line(edit.file, number) for number in range(edit.start[0], edit.end[0] + 1))
        if not any(before):
            return []
        after = (before[0][: edit.start[1] - 1] + edit.after + before[-1][edit.end[1] - 1 :]).split("\n")
        if 1 < len(before) < len(after):  # lines are put into a block: both texts, as marks would be below each of them
            return [(self.gutter.rstrip(), ""), *self._exchanged(edit.start[0], before, after)]
        changed = _changed(before, after)
        lines: list[StyledLine] = [(self.gutter.rstrip(), "")]
        if changed and changed[0][0]:  # the change is further down in a statement over several lines
            lines += self._first_line(edit.file, edit.start[0], edit.start[0] + changed[0][0])
        for number, old, new in changed[:_MOST_CHANGED_LINES]:
            lines += self._changed_line(edit.start[0] + number, old, new)
        following = changed[-1][0] + 1 if changed else len(after)
        if len(after) > len(before) and following < len(after):  # new lines are shown with the one they stand before
            lines.append((self._numbered(edit.start[0] + following, self._cut(after[following])), ""))
        return lines

    def _exchanged(self, number: int, before: Sequence[str], after: Sequence[str]) -> Iterator[StyledLine]:
        for sign, texts, style in (("-", before, "red"), ("+", after, "green")):
            for at, text in enumerate(texts):
                if _LEAST_SHOWN <= at < len(texts) - _LEAST_SHOWN:
                    if at == _LEAST_SHOWN:
                        yield f"{'.' * 3:>{self.margin}}", style
                    continue
                yield self._signed(number + at, sign, self._cut(text)), style

    def _changed_line(self, number: int, old: str, new: str | None) -> list[StyledLine]:
        if new is None:
            return [(self._signed(number, "-", self._cut(old)), "red")]
        marks = self._marks(old, new)
        if not marks.strip() and old.strip():  # text is only removed: both lines, so that it can be seen
            removed, added = self._cut(old), self._cut(new)
            return [(self._signed(number, "-", removed), "red"), (self._signed(number, "+", added), "green")]
        if not self._fits(new):
            new = _without_comment(new)
        if self._columns(marks.lstrip()) > self.room - _LEAST_AROUND:  # whole, so that it can be copied
            added = self.display.printable(new)
            return [(self._signed(number, "-", self._cut(old)), "red"), (self._signed(number, "+", added), "green")]
        begin, end = len(marks) - len(marks.lstrip()), len(marks)
        line, *span = self.display.clipped(self.display.printable(new), begin, max(end, begin + 1), self.room)
        if not self._fits(new):
            mark = "+" if set(marks.strip()) == {"+"} else "~"
            marks = " " * columns(line[: span[0]]) + mark * columns(line[span[0] : span[1]])
        shown = [(self._numbered(number, line), "green")]
        if marks.strip():  # an edit that only removes text adds nothing to mark
            shown.append((self.gutter + marks, "green"))
        return shown

    def _marks(self, old: str, new: str) -> str:
        """The marks under a changed line: ``+`` below added text, ``~`` below replaced text."""
        olds, news = _WORD.findall(old), _WORD.findall(new)
        # a common end is the same text, even if the rest matches too: of two brackets, the outer one was there before
        shorter = min(len(olds), len(news))
        tail = next((n for n, (a, b) in enumerate(zip(olds[::-1], news[::-1])) if a != b), shorter)
        head = next((n for n, (a, b) in enumerate(zip(olds, news)) if a != b), shorter)
        tail = min(tail, shorter - head)
        marks = " " * self._columns("".join(news[:head]))
        old_middle, new_middle = olds[head : len(olds) - tail], news[head : len(news) - tail]
        matcher = difflib.SequenceMatcher(None, old_middle, new_middle, autojunk=False)
        for how, _, _, begin, end in matcher.get_opcodes():
            marks += _MARKS[how] * self._columns("".join(new_middle[begin:end]))
        return marks.rstrip()

    def _columns(self, text: str) -> int:
        return columns(self.display.printable(text))


def _changed(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, str, str | None]]:
    """The changed lines: number, old text (for a new line its indentation), new text (None for a removed line)."""
    same = zip(reversed(before), reversed(after))
    tail = next((n for n, (old, new) in enumerate(same) if old != new), min(len(before), len(after)))
    head, new_lines = len(before) - tail, after[: len(after) - tail]
    olds = [*before[:head], *(new[: len(new) - len(new.lstrip())] for new in new_lines[head:])]
    changed = [(n, old, new) for n, (old, new) in enumerate(zip(olds, new_lines)) if old != new]
    return [*changed, *((n, old, None) for n, old in enumerate(olds[len(new_lines) :], len(new_lines)))]


_MARKS = {"equal": " ", "insert": "+", "replace": "~", "delete": ""}


def styled(lines: Sequence[str], style: str) -> list[StyledLine]:
    return [(line, style) for line in lines]


def _without_comment(line: str) -> str:
    """A line without the comment at its end."""
    try:
        for token in tokenize.generate_tokens(iter([line]).__next__):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError, StopIteration):  # part of a statement: the tokens so far had no comment
        pass
    return line.rstrip()


def joined(recording: Recording, edits: Sequence[Edit]) -> Iterator[Edit]:
    """The edits in order; those that change the same lines become one, which shows the final lines."""
    groups: list[list[Edit]] = []
    for edit in edits:
        if groups and _touch(groups[-1], edit):
            groups[-1].append(edit)
        else:
            groups.append([edit])
    for group in groups:
        together = _as_one(recording, group) if len(group) > 1 else None
        yield from [together] if together is not None else group


def _touch(group: Sequence[Edit], edit: Edit) -> bool:
    """Whether an edit changes lines that the edits of a group change."""
    first, end = min(e.start[0] for e in group), max(e.end[0] for e in group)
    return edit.file == group[0].file and edit.start[0] <= end and edit.end[0] >= first


def _as_one(recording: Recording, group: Sequence[Edit]) -> Edit | None:
    """Several edits of the same lines as one edit; None where they cannot be applied together."""
    file, first, end = group[0].file, min(e.start[0] for e in group), max(e.end[0] for e in group)
    before = "\n".join(recording.line(file, number) for number in range(first, end + 1))
    patched_file = PatchedFile(file, before, "", "")
    changes = [patched_file.locate(_moved(edit, first - 1)) for edit in group]  # positions are in the unchanged text
    for order, change in enumerate(changes):
        if change is None or not patched_file.add(change, order):
            return None
    return Edit(file, (first, 1), (end, len(before.rpartition("\n")[2]) + 1), before, patched_file.text)


def _moved(edit: Edit, up: int) -> Edit:
    """The same edit, this many lines further up."""
    return replace(edit, start=(edit.start[0] - up, edit.start[1]), end=(edit.end[0] - up, edit.end[1]))
